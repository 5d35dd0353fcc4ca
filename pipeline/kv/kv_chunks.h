// KvChunks: which chunks of the attention sockets' KV caches (attention_node/kv_region.h) each slot
// lists. One object decides for all sockets of a chain: it hands out chunks as sequences grow, lets
// sequences with a common beginning list the same ones, and says what has changed, as KvUpdates for
// the next micro-batch. A chunk that several slots list is not written: a slot that would write
// into it gets a copy. Plain bookkeeping, without the keys and values themselves. Only the engine's
// thread uses it; it allocates nothing after its construction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/step/capacity.h"
#include "model/step/kv_update.h"

namespace larder::pipeline::inline kv {

struct KvChunksShape {
  model::Capacity capacity;  // its slots and context
  size_t chunk_positions = 1;
  // Where the slots of each attention socket end; empty: attention is colocated, one socket has
  // all.
  std::vector<SlotId> slot_ends;
  std::vector<size_t> chunk_ends;  // where each socket's chunks end; each has at least the chunks
                                   // of one full context
  size_t max_updates = 1;          // most updates of a micro-batch
  size_t kept = 0;                 // number of kept sequences, which have no slot

  size_t slot_chunks() const { return (capacity.context + chunk_positions - 1) / chunk_positions; }
};

class KvChunks {
 public:
  explicit KvChunks(const KvChunksShape& shape);
  const KvChunksShape& shape() const { return shape_; }

  // The ids from shape().capacity.slots on, `kept` of them, belong to sequences that are kept so
  // that others can begin with them. No micro-batch has rows of them, and no socket knows them.
  // They are made by Keep and removed by Reset.
  size_t lists() const { return lengths_.size(); }

  // The positions of the slot's sequence, [0, length).
  size_t length(SlotId slot) const { return lengths_[slot.index()]; }
  // The last position, at most `positions`, at which a sequence with the same beginning as the
  // slot's can go on with the chunks that the slot lists.
  size_t Usable(SlotId slot, size_t positions) const { return std::min(length(slot), positions); }
  // Cuts the sequence at `begin` <= length and makes room for positions up to `end`. Returns up to
  // where there is room: `end`, or less if no chunk is free.
  size_t Reserve(SlotId slot, size_t begin, size_t end);
  // Positions up to `end`, for which there is room, have been submitted.
  void Extend(SlotId slot, size_t end) { lengths_[slot.index()] = end; }
  // Makes `to` a sequence with the first `positions` positions of another slot, `from`; `to` loses
  // what it had. Returns how many positions it got: fewer if chunks or updates run out, 0 if the
  // slots belong to different sockets.
  size_t Fork(SlotId to, SlotId from, size_t positions);
  // Moves the slot's sequence to `kept`, which loses what it had. The slot is empty afterwards.
  void Keep(SlotId kept, SlotId slot);
  // The opposite. Returns false if the next micro-batch has no room for that many updates.
  bool Restore(SlotId slot, SlotId kept);
  // Adds free chunks to the slot until it has `chunks`. The sequence must end with a chunk. Keys
  // and values are not computed but copied to the new chunks, before Extend. Returns how many
  // chunks the slot has: fewer if chunks or updates run out.
  size_t Grow(SlotId slot, size_t chunks);
  // The chunk at `index` of its list.
  uint32_t chunk(SlotId slot, size_t index) const { return entry(slot, index); }
  // A held chunk is neither handed out nor written, whether or not slots list it.
  void Hold(uint32_t chunk) { shared_ += ++users_[chunk] == 2; }
  void LetGo(uint32_t chunk);
  // Cuts the sequence to its first `positions` (at most its length).
  void Shorten(SlotId slot, size_t positions);
  void Reset(SlotId slot) { Shorten(slot, 0); }
  void ResetAll();  // also forgets all updates: no table is known any longer

  AttentionId socket_of(SlotId slot) const {
    return AttentionId(static_cast<int32_t>(socket_[slot.index()]));
  }
  size_t pool(AttentionId socket) const { return pools_[socket.index()].free_list.size(); }
  size_t free(AttentionId socket) const { return pools_[socket.index()].free; }
  // The number of chunks, over all sockets, that several slots list, or a slot and a holder.
  size_t shared() const { return shared_; }
  // The number of chunks that only this slot lists, which would be free without it.
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
  // The most updates that forks may use; the others are left for the next micro-batch's rows.
  size_t MostForks() const { return updates_.size() / 2; }
  // Appends a free chunk to the slot's list. False if no chunk is free, or there is no room for the
  // update.
  bool Append(SlotId slot, uint32_t copied_from, size_t copied_positions);
  void List(SlotId slot, uint32_t chunk, uint32_t copied_from, size_t copied_positions);
  void Cut(SlotId slot, size_t chunks);  // cuts the list to that many
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
