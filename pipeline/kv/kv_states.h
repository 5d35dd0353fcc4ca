// KvStates: at which positions each sequence has the states of its recurrent layers, and in which
// chunks of their class (model/step/kv_class.h). A sequence can go on only where it has one: at its
// end, and where states were kept on the way. A state that several sequences have, or that is kept,
// is not written: who goes on there gets a copy. Kept ones, and those of sequences without a slot,
// are given up when chunks run out: by the sequences that have most of them, since one that has
// lost its last is computed from the beginning; of equal ones those unused for longest. That costs
// time, not bits. Plain bookkeeping for KvChunks; it allocates nothing after its construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/range.h"
#include "model/step/kv_update.h"

namespace larder::pipeline::inline kv {

class KvStates {
 public:
  // An attention socket's chunks, at least as many as it has slots.
  struct Pool {
    Range<size_t> chunks;
    size_t slots;
  };
  // lists: of slots, then of sequences without one. pools: [attention socket]; none: the model has
  // no states.
  KvStates(size_t lists, size_t slots, std::vector<Pool> pools);
  bool any() const { return !pools_.empty(); }
  void ResetAll();

  // The last position, at most `positions`, at which the sequence has a state; 0: nowhere.
  size_t Usable(SlotId list, size_t positions) const;
  // The slot, one of the socket's, goes on at `begin`, where it must have a state, or begins there
  // if that is 0; it loses those behind. Returns the number of updates that it wrote to `out`: at
  // most 1.
  size_t Begin(SlotId slot, AttentionId socket, size_t begin, model::KvUpdate* out);
  // What Begin began has been submitted up to `end`.
  void Extend(SlotId slot, size_t end);
  // How long a state is kept where its sequence goes on.
  enum class Stay : uint8_t {
    kNot,
    kUntilNext,  // until the sequence has another one of these
    kLong,
  };
  // The state where the slot's sequence ends, if it has one, stays when it goes on, if there is
  // room.
  void KeepEnd(SlotId slot, Stay stay = Stay::kLong);
  // Cuts the sequence to its first `positions`, which must be usable.
  void Cut(SlotId list, size_t positions);
  // `to`, which has none, also has those of `from` up to `positions`, which must be usable.
  void Share(SlotId to, SlotId from, size_t positions);
  // `to`, which has none, gets those of `from`.
  void Move(SlotId to, SlotId from);

  // Adds a state at `position`, behind all others of the slot's sequence, and returns its chunk,
  // which is not computed but written by the caller; kNone: there is no room.
  uint32_t Add(SlotId slot, AttentionId socket, size_t position);
  static constexpr uint32_t kNone = UINT32_MAX;
  // A held chunk is not written, and stays. Returns false if the slots may need it.
  bool Hold(uint32_t chunk);
  void LetGo(uint32_t chunk);
  // Calls fn(position, chunk) for each state of the sequence, ascending.
  template <typename Fn>
  void ForEach(SlotId list, Fn fn) const {
    for (const State& state : list_[list.index()]) fn(state.position, state.chunk);
  }

  // How many chunks have states that no slot's sequence ends with.
  size_t kept() const;

 private:
  struct State {
    size_t position;
    uint32_t chunk;
    bool until_next = false;  // Stay::kUntilNext
  };
  struct Wish {
    size_t position = 0;
    Stay stay = Stay::kNot;
  };
  // The most states of a sequence.
  static constexpr size_t kMostStates = 16;

  void Release(uint32_t chunk);
  // Gives up the slot's states that were to stay until there is another.
  void ReleasePassed(SlotId slot);
  // A free chunk, or one whose states are given up; kNone: all are where slots' sequences end.
  uint32_t Take(AttentionId socket);
  // Of each chunk, how many states the shortest list has that it is in.
  void CountLists();
  // Which chunks are where a slot's sequence ends, or held.
  void MarkEnds() const;
  const Pool& PoolOf(uint32_t chunk) const;
  void GiveUp(uint32_t chunk);  // nobody has it any longer, except as the end of a slot's sequence
  void Append(SlotId list, State state);

  const size_t slots_;
  const std::vector<Pool> pools_;
  const size_t first_ = 0;                // of all chunks
  std::vector<std::vector<State>> list_;  // [list]: ascending; the last one is the sequence's end
  std::vector<Wish> keep_;                // [slot]: KeepEnd at that position
  std::vector<uint32_t> mapped_;          // [slot]: the chunk that its attention socket knows
  std::vector<uint32_t> users_;           // [chunk - first_]: lists' entries
  std::vector<uint64_t> uses_;            // [chunk - first_]: when it was last gone on from
  std::vector<uint32_t> held_;            // [chunk - first_]: how often; counted in users_, too
  mutable std::vector<uint8_t> ends_;     // [chunk - first_]: MarkEnds
  std::vector<size_t> fewest_;            // [chunk - first_]: CountLists
  uint64_t use_ = 0;
};

}  // namespace larder::pipeline::kv
