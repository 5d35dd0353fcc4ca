// KvChunks: which chunks of the attention sockets' KV caches (attention_node/kv_region.h) each slot
// lists. One object decides for all sockets of a chain: it hands out chunks as sequences grow, lets
// sequences with a common beginning list the same ones, and says what has changed, as KvUpdates for
// the next micro-batch. A chunk that several slots list is not written: a slot that would write
// into it gets a copy. Plain bookkeeping, without the keys and values themselves. Only the engine's
// thread uses it; it allocates nothing after its construction.
//
// Each class of memory (model/step/kv_class.h) has its chunks, pools and lists. In a class with
// windows, chunks before those that a sequence's next rows see are loose: they stay in its list,
// for sequences that begin as it does, until others want them. So a list has a first chunk. Which
// states a sequence has is for KvStates to know.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/layer/layer_spec.h"
#include "model/step/capacity.h"
#include "model/step/kv_class.h"
#include "model/step/kv_update.h"
#include "pipeline/kv/kv_piece.h"
#include "pipeline/kv/kv_states.h"

namespace larder::pipeline::inline kv {

struct KvChunksShape {
  model::Capacity capacity;  // its slots and context
  size_t chunk_positions = 1;
  // Where the slots of each attention socket end; empty: attention is colocated, one socket has
  // all.
  std::vector<SlotId> slot_ends;
  // [socket * classes + class]: where the chunks end, by their numbers. Each socket has at least
  // those that one sequence needs.
  std::vector<size_t> chunk_ends;
  size_t max_updates = 1;  // most updates of a micro-batch
  size_t kept = 0;         // number of kept sequences, which have no slot
  std::vector<model::KvClass> classes = {model::KvClass{}};
  // [class]: of a chunk, over all stages; empty: chunks of all classes are of one size.
  std::vector<uint64_t> class_bytes;
  bool states() const { return classes.back().states; }
  // Whether all layers keep all positions.
  bool plain() const { return classes.size() == 1 && classes[0].window == 0; }

  // How many slots an attention socket has.
  size_t SlotsOf(size_t socket) const {
    if (slot_ends.empty()) return capacity.slots;
    return slot_ends[socket].index() - (socket == 0 ? 0 : slot_ends[socket - 1].index());
  }
  size_t slot_chunks() const { return (capacity.context + chunk_positions - 1) / chunk_positions; }
  // What a sequence of so many positions needs of all classes to go on, in bytes or, if their
  // chunks are of one size, in chunks.
  uint64_t NeededBytes(size_t positions) const;
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
  // slot's can go on with what the slot has: its length or `positions`, if there are no states; 0
  // where what windows see there is gone.
  size_t Usable(SlotId slot, size_t positions) const;
  // The same, in whole chunks.
  size_t UsableChunks(SlotId slot, size_t positions) const;
  // Cuts the sequence at `begin` <= length, which must be usable, and makes room for positions up
  // to `end`, those of a micro-batch. Returns up to where there is room: `end`, or less if no chunk
  // is free.
  size_t Reserve(SlotId slot, size_t begin, size_t end);
  // Positions up to `end`, for which there is room, have been submitted.
  void Extend(SlotId slot, size_t end) {
    lengths_[slot.index()] = end;
    if (states_.any()) states_.Extend(slot, end);
    KeepFor(slot, end, end);
  }
  // What recurrent layers have seen of the slot's sequence is kept as it is now, if there is room:
  // sequences that begin as this one does can go on there. UntilNext: until this is called again
  // for the slot.
  void KeepState(SlotId slot) { states_.KeepEnd(slot); }
  void KeepStateUntilNext(SlotId slot) { states_.KeepEnd(slot, KvStates::Stay::kUntilNext); }
  // The number of states that are kept so, and of those that ended sequences have.
  size_t kept_states() const { return states_.any() ? states_.kept() : 0; }
  // Makes `to` a sequence with the first `positions` positions of another slot, `from`; `to` loses
  // what it had. Returns how many positions it got: fewer if chunks or updates run out, or what
  // windows see there is gone; 0 if the slots belong to different sockets.
  size_t Fork(SlotId to, SlotId from, size_t positions);
  // Moves the slot's sequence to `kept`, which loses what it had. The slot is empty afterwards.
  void Keep(SlotId kept, SlotId slot);
  // The opposite. Returns false if the next micro-batch has no room for that many updates.
  bool Restore(SlotId slot, SlotId kept);
  // Makes room for the slot's sequence to have `chunks` chunks, and all that it needs to go on
  // behind them, which is not computed but copied there, before Extend. The sequence must end with
  // a chunk, and loses what windows see of it if they see nothing of it there. Returns how many
  // chunks it has: fewer if chunks or updates run out; then, with more than one class, none of them
  // is new.
  size_t Grow(SlotId slot, size_t chunks);
  // What the slot's sequence has of the first `chunks` chunks of positions: all that it needs to go
  // on behind them, if that is usable, and the states behind some of them. In the order of their
  // positions.
  std::vector<KvPiece> Pieces(SlotId slot, size_t chunks) const;
  // All that the slot's sequence has of its first `positions`, which must be usable: the chunks of
  // each class from the first one that it lists, and the last two states, since a next turn often
  // goes on a little before the end. Ordered by class; the index of states is their position.
  std::vector<KvPiece> PiecesAt(SlotId slot, size_t positions) const;
  // Makes room for the slot's empty sequence to have such pieces of its first `positions`, which
  // are copied there before Extend; loose ones and the earlier state only as there is room. False
  // if chunks or updates run out; then it goes on when called again.
  bool GrowAt(SlotId slot, size_t positions, std::span<const KvPiece> pieces);
  // A held chunk is neither handed out nor written, whether or not slots list it. Returns false if
  // it can't be held: there are too few chunks for that.
  bool Hold(const KvPiece& piece);
  void LetGo(const KvPiece& piece);
  // Cuts the sequence to its first `positions`, which must be usable.
  void Shorten(SlotId slot, size_t positions);
  void Reset(SlotId slot) { Shorten(slot, 0); }
  void ResetAll();  // also forgets all updates: no table is known any longer

  AttentionId socket_of(SlotId slot) const {
    return AttentionId(static_cast<int32_t>(socket_[slot.index()]));
  }
  // The chunks of the first class, which decides what can run: in the others there is room for what
  // it has room for.
  size_t pool(AttentionId socket) const { return pool_of(socket, 0).free_list.size(); }
  // Its free chunks, and those that only loose places of lists have.
  size_t free(AttentionId socket) const;
  // The most of its chunks that a sequence needs at once.
  size_t most_chunks() const;
  // The number of chunks that only this slot lists, which would be free without it.
  size_t own(SlotId slot) const;
  // The first one that the slot lists.
  size_t first(SlotId slot) const { return classes_[0].first[slot.index()]; }

  // Whether some class has neither free chunks nor loose ones.
  bool Short(AttentionId socket) const;
  // Whether the first class has neither.
  bool ShortOfFirst(AttentionId socket) const { return ShortOf(socket, 0); }
  // The number of chunks, over all sockets and classes, that several slots list, or a slot and a
  // holder.
  size_t shared() const { return shared_; }

  // What has changed since the last ClearUpdates, for the next micro-batch.
  std::span<const model::KvUpdate> updates() const { return {updates_.data(), updates_count_}; }
  void ClearUpdates() { updates_count_ = 0; }

 private:
  struct Pool {
    std::vector<uint32_t> free_list;  // its chunks: the first `free` of the list are free
    size_t free = 0;
  };
  struct Class {
    size_t window = 0;
    std::vector<size_t> first, end;  // [slot]: its list has the places [first, end)
    std::vector<uint32_t> table;     // [slot][index]
  };
  uint32_t& entry(size_t of_class, SlotId slot, size_t index) {
    return classes_[of_class].table[slot.index() * slot_chunks_ + index];
  }
  uint32_t entry(size_t of_class, SlotId slot, size_t index) const {
    return classes_[of_class].table[slot.index() * slot_chunks_ + index];
  }
  Pool& pool_of(AttentionId socket, size_t of_class) {
    return pools_[socket.index() * shape_.classes.size() + of_class];
  }
  const Pool& pool_of(AttentionId socket, size_t of_class) const {
    return pools_[socket.index() * shape_.classes.size() + of_class];
  }
  Pool& pool_with(uint32_t chunk);
  // The most updates that forks may use; the others are left for the next micro-batch's rows.
  size_t MostForks() const { return updates_.size() / 2; }
  // The first chunk that rows from `position` on see.
  size_t FirstSeen(const Class& of, size_t position) const {
    return model::FirstSeen(of.window, position) / shape_.chunk_positions;
  }
  // The next rows of the slot begin at `begin` at the earliest; those of a micro-batch that ends at
  // `end` may come again.
  void KeepFor(SlotId slot, size_t begin, size_t end) {
    const size_t rows = shape_.capacity.max_batch_tokens;
    keeps_[slot.index()] = std::min(begin, end > rows ? end - rows : 0);
  }
  // Where the loose places of the slot's list end.
  size_t LooseEnd(const Class& of, SlotId slot) const {
    return std::min(of.end[slot.index()], FirstSeen(of, keeps_[slot.index()]));
  }
  bool ShortOf(AttentionId socket, size_t of_class) const {
    return pool_of(socket, of_class).free == 0 && !AnyLoose(socket, classes_[of_class]);
  }
  bool AnyLoose(AttentionId socket, const Class& of) const;
  // Takes loose places from lists, those that were reserved longest ago first, until that frees a
  // chunk. Returns whether it did.
  bool FreeLoose(AttentionId socket, size_t of_class);
  // Appends a free or loose chunk to the slot's list. False if there is none, or no room for the
  // update.
  bool Append(size_t of_class, SlotId slot, uint32_t copied_from, size_t copied_positions);
  void List(size_t of_class, SlotId slot, uint32_t chunk, uint32_t copied_from,
            size_t copied_positions);
  // Appends chunks to the slot's list, whose first one will be `first` if it has none of those from
  // there on, until it ends with `end`. False if chunks or updates run out.
  bool ListUpTo(size_t of_class, SlotId slot, size_t first, size_t end);
  // The number of chunks that a sequence of so many positions lists, which goes on there.
  size_t ChunksAt(size_t positions) const;
  void Cut(SlotId slot, size_t chunks);  // cuts the lists to that many
  void Release(Pool& pool, uint32_t chunk);

  KvChunksShape shape_;
  size_t slot_chunks_;
  std::vector<uint32_t> socket_;  // [slot]
  std::vector<size_t> lengths_;   // [slot]: positions
  std::vector<size_t> keeps_;     // [slot]: the first position whose rows find what they see
  std::vector<uint64_t> uses_;    // [slot]: when it was last reserved
  uint64_t use_ = 0;
  std::vector<Class> classes_;   // without that of states
  std::vector<uint32_t> users_;  // [chunk]: slots that list it, and holders
  std::vector<Pool> pools_;      // [socket * shape_.classes + class]
  KvStates states_;
  size_t shared_ = 0;
  std::vector<model::KvUpdate> updates_;  // [max_updates]
  size_t updates_count_ = 0;
};

}  // namespace larder::pipeline::kv
