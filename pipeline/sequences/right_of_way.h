// RightOfWay: which running sequences give their slots or their turn to others: the background to
// those that wait, a long prompt to a much shorter one, the youngest where the KV of all would not
// stay in L3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pipeline/sequences/running.h"
#include "pipeline/sequences/slot_table.h"
#include "pipeline/sequences/stored_chunks.h"
#include "pipeline/sequences/waiting_queue.h"

namespace larder::pipeline::inline sequences {

class RightOfWay {
 public:
  // active_tokens: as in SchedulerOptions. All others must outlive it.
  RightOfWay(SlotTable& slots, StoredChunks& stored, WaitingQueue& queue, Running& running,
             size_t active_tokens);

  // Whether a queued sequence may run beside the others of the socket.
  bool MayRunToo(const Active& active, AttentionId socket) const;
  // Called between steps, before queued sequences get slots. chunks_wanted: the first of the queue
  // would have a slot, but no chunks, or no room within active_tokens. ordered: a slot of the
  // background that is to be left for an order (slot_orders.h).
  void MakeWay(bool chunks_wanted, std::optional<SlotId> ordered);

 private:
  void MakeWayForShort();
  void MakeWayForWaiting(bool chunks_wanted);
  void KeepWithinActiveTokens();
  uint64_t RunningBytes(AttentionId socket) const;

  SlotTable& slots_;
  StoredChunks& stored_;
  WaitingQueue& queue_;
  Running& running_;
  const std::optional<uint64_t> most_bytes_;  // for RunningBytes of a socket
};

}  // namespace larder::pipeline::sequences
