// `larder serve --slot-save-path`: saves, restores and erases what slots have in the KV cache, for
// a server's clients, in files of one folder. A key's slots and files are its own. Any thread but
// the compute thread; one order is done at a time.
#pragma once

#include <functional>
#include <string>

#include "pipeline/kv_store/slot_file.h"
#include "pipeline/scheduler/scheduler.h"
#include "serving/net/server_state.h"

namespace larder::node::inline tasks {

struct SlotFolderOptions {
  std::string folder;
  uint64_t most_bytes = UINT64_MAX;  // limit for all files in the folder; a save beyond it is
                                     // refused
  pipeline::SlotFileOptions files;
};

// nudge: ends the wait of the scheduler's intake. The scheduler must outlive the result. Makes the
// folder if it is missing. Throws Error if it can't be made, belongs to another user, or is open to
// others.
serving::SlotActions MakeSlotActions(const SlotFolderOptions&, pipeline::Scheduler& scheduler,
                                     std::function<void()> nudge);

}  // namespace larder::node::tasks
