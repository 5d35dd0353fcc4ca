// `larder serve --slot-save-path`: saves, restores and erases what slots have in the KV cache, for
// a server's clients, in files of one folder. Called by one thread at a time, which is not the
// compute thread.
#pragma once

#include <functional>
#include <string>

#include "pipeline/kv_store/slot_file.h"
#include "pipeline/scheduler/scheduler.h"
#include "serving/net/server_state.h"

namespace larder::node::inline tasks {

// nudge: ends the wait of the scheduler's intake. The scheduler must outlive the result. Makes the
// folder if it is not there. Throws Error: it can't be made, is another user's, or open to others.
serving::SlotActions MakeSlotActions(const std::string& folder,
                                     const pipeline::SlotFileOptions& options,
                                     pipeline::Scheduler& scheduler, std::function<void()> nudge);

}  // namespace larder::node::tasks
