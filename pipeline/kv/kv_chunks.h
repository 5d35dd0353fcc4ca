// KvChunks: which chunks of the attention sockets' KV caches (attention_node/kv_region.h) each slot
// lists. One object decides for all sockets of a chain: it hands out chunks as sequences grow, lets
// sequences with a common beginning list the same ones, and says what has changed, as KvUpdates for
// the next micro-batch. A chunk that several slots list is not written: who would write into it
// gets a copy. Plain bookkeeping, without the keys and values themselves. Only the engine's thread
// uses it; it allocates nothing after its construction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/step/kv_update.h"

namespace larder::pipeline::inline kv {

struct KvChunksShape {
  size_t slots = 1, context = 1;
  size_t chunk_positions = 1;
  // Where the slots of each attention socket end; empty: attention is colocated, one socket has
  // all.
  std::vector<SlotId> slot_ends;
  std::vector<size_t> chunk_ends;  // of each socket; each has at least the chunks of one full
                                   // context
  size_t max_updates = 1;          // of a micro-batch
  size_t kept = 0;                 // sequences without a slot

  size_t slot_chunks() const { return (context + chunk_positions - 1) / chunk_positions; }
};

class KvChunks {
 public:
  explicit KvChunks(const KvChunksShape& shape);
  const KvChunksShape& shape() const { return shape_; }

  // Ids from shape().slots on, `kept` of them, are of sequences that are kept for others to begin
  // with: no micro-batch has rows of them, and no socket knows of them. They come by Keep, and go
  // by Reset.
  size_t lists() const { return lengths_.size(); }

  // The positions of the slot's sequence, [0, length).
  size_t length(SlotId slot) const { return lengths_[slot.index()]; }
  // The last position, at most `positions`, from which a sequence that begins as the slot's can go
  // on with what it lists.
  size_t Usable(SlotId slot, size_t positions) const { return std::min(length(slot), positions); }
  // Makes room for positions up to `end`, where the sequence goes on from `begin` <= length: it is
  // cut there. Returns how far there is room: `end`, or less if no chunk is free.
  size_t Reserve(SlotId slot, size_t begin, size_t end);
  // Positions up to `end`, for which there is room, have been submitted.
  void Extend(SlotId slot, size_t end) { lengths_[slot.index()] = end; }
  // Makes `to` a sequence with the first `positions` of `from`, another slot; `to` loses what it
  // had. Returns how many it has: fewer if chunks or updates run out, none of another socket's
  // slot.
  size_t Fork(SlotId to, SlotId from, size_t positions);
  // Gives the kept sequence `kept`, which loses what it had, what the slot has; the slot is empty
  // then.
  void Keep(SlotId kept, SlotId slot);
  // The opposite. Returns whether it is done: the next micro-batch may have no room for so many
  // updates.
  bool Restore(SlotId slot, SlotId kept);
  // Lists free chunks until the slot, whose sequence ends with a chunk, has `chunks`, for keys and
  // values that are not computed but copied to them before Extend. Returns how many it has: fewer
  // if chunks or updates run out.
  size_t Grow(SlotId slot, size_t chunks);
  // The chunk at `index` of its list.
  uint32_t chunk(SlotId slot, size_t index) const { return entry(slot, index); }
  // A chunk that is held is neither handed out nor written, whoever lists it.
  void Hold(uint32_t chunk) { shared_ += ++users_[chunk] == 2; }
  void LetGo(uint32_t chunk);
  // Cuts the sequence to its first `positions` (at most its length).
  void Shorten(SlotId slot, size_t positions);
  void Reset(SlotId slot) { Shorten(slot, 0); }
  void ResetAll();  // and forgets all updates: every table is unknown

  AttentionId socket_of(SlotId slot) const {
    return AttentionId(static_cast<int32_t>(socket_[slot.index()]));
  }
  size_t pool(AttentionId socket) const { return pools_[socket.index()].free_list.size(); }
  size_t free(AttentionId socket) const { return pools_[socket.index()].free; }
  // Chunks that more than one slot lists, or one and a holder, of all sockets.
  size_t shared() const { return shared_; }
  // The chunks that only this slot lists: as many would be free without it.
  size_t own(SlotId slot) const;

  // What has changed since the last ClearUpdates, for the next micro-batch.
  std::span<const model::KvUpdate> updates() const { return {updates_.data(), updates_count_}; }
  void ClearUpdates() { updates_count_ = 0; }

 private:
  struct Pool {
    std::vector<uint32_t> free_list;  // its chunks: the first `free` of the list are free
    size_t free = 0;
  };
  uint32_t& entry(SlotId slot, size_t index) { return table_[slot.index() * slot_chunks_ + index]; }
  uint32_t entry(SlotId slot, size_t index) const {
    return table_[slot.index() * slot_chunks_ + index];
  }
  Pool& pool_of(SlotId slot) { return pools_[socket_[slot.index()]]; }
  // The most updates of forks: those that the next micro-batch's rows need are left free.
  size_t MostForks() const { return updates_.size() / 2; }
  // Appends a free chunk to the slot's list; false: there is none, or no room for the update.
  bool Append(SlotId slot, uint32_t copied_from, size_t copied_positions);
  void List(SlotId slot, uint32_t chunk, uint32_t copied_from, size_t copied_positions);
  void Cut(SlotId slot, size_t chunks);  // to so many
  void Release(Pool& pool, uint32_t chunk);

  KvChunksShape shape_;
  size_t slot_chunks_;
  std::vector<uint32_t> socket_;  // [slot]
  std::vector<size_t> lengths_;   // [slot]: positions
  std::vector<size_t> listed_;    // [slot]: chunks of its list
  std::vector<uint32_t> table_;   // [slot][index]
  std::vector<uint32_t> users_;   // [chunk]: slots that list it, and holders
  std::vector<Pool> pools_;       // [socket]
  size_t shared_ = 0;
  std::vector<model::KvUpdate> updates_;  // [max_updates]
  size_t updates_count_ = 0;
};

}  // namespace larder::pipeline::kv
