// SlotTable: the slots of the KV cache and, behind them, the sequences that are kept without one:
// which tokens each has, whose they are, and who runs there. It keeps one thing true: a slot's
// tokens are those whose keys and values its chunks have (pipeline/kv/kv_chunks.h), or will have
// when what is submitted is computed. It finds what a prompt can begin with, and gives up what
// nobody has used for longest. It decides neither who runs nor when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "pipeline/engine/token_engine.h"
#include "pipeline/kv/kv_chunks.h"
#include "pipeline/sequences/active.h"
#include "pipeline/sequences/scheduler_status.h"

namespace larder::pipeline::inline sequences {

// A slot is not preferred for a cached prefix shorter than this and than half of the prompt, since
// all chat prompts share the first tokens of the template.
inline constexpr size_t kWorthReusing = 16;

struct Slot {
  std::vector<int32_t> tokens;  // whose keys and values it holds, including submitted ones
  uint64_t tenant = 0;          // the tenant for which they were computed
  uint64_t last_used = 0;
  std::unique_ptr<Active> active;  // null: idle
};

// Where a sequence begins: in `slot`, with the first `tokens` tokens of `source`, which may be
// `slot` itself.
struct Place {
  SlotId slot, source;
  size_t tokens = 0;
  bool takes = false;  // the source, an ended sequence, gives up everything beyond these
  size_t stored = 0;   // tokens whose chunks are in files; 0: no more than `tokens`
  // With how many tokens of another sequence it begins, though it can't go on there for want of a
  // state; 0: not worth a state.
  size_t branch = 0;
  size_t most() const { return std::max(tokens, stored); }
};

class SlotTable {
 public:
  // reuse_prefixes: whether a prompt may begin with what another sequence has. The engine, its
  // KvChunks and the status must outlive it.
  SlotTable(TokenEngine& engine, bool reuse_prefixes, SchedulerStatus& status);

  Slot& operator[](SlotId id) { return slots_[id.index()]; }
  const Slot& operator[](SlotId id) const { return slots_[id.index()]; }
  Active& active(SlotId id) { return *slots_[id.index()].active; }
  const Active& active(SlotId id) const { return *slots_[id.index()].active; }
  const EngineLimits& limits() const { return limits_; }
  SlotId end() const { return SlotId(static_cast<int32_t>(limits_.capacity.slots)); }
  // Where the sequences end that are kept without a slot.
  SlotId end_of_kept() const { return SlotId(static_cast<int32_t>(slots_.size())); }
  KvChunks& kv() { return kv_; }
  const KvChunks& kv() const { return kv_; }
  size_t chunk_positions() const { return kv_.shape().chunk_positions; }
  size_t sockets() const { return std::max<size_t>(limits_.attention_slot_ends.size(), 1); }
  bool reuses() const { return reuse_prefixes_; }

  size_t actives() const { return actives_; }        // slots that are not idle
  size_t background() const { return background_; }  // of these, the background's
  // The slot's sequence runs there from now on, or no longer.
  void Seat(SlotId id, std::unique_ptr<Active> active);
  std::unique_ptr<Active> Unseat(SlotId id);
  // Orders slots by their last use. Returns its number.
  uint64_t Use(SlotId id) { return slots_[id.index()].last_used = ++uses_; }
  // The running sequence, of those that which(id, active) accepts, that was the last one to begin.
  template <typename Which>
  std::optional<SlotId> YoungestOf(Which which) const {
    std::optional<SlotId> youngest;
    for (SlotId id(0); id < end(); ++id) {
      const Active* active = slots_[id.index()].active.get();
      if (active == nullptr || !which(id, *active)) continue;
      if (!youngest || active->order > slots_[youngest->index()].active->order) youngest = id;
    }
    return youngest;
  }
  // The slot that it is to have, if another sequence has that.
  std::optional<SlotId> TakenSlotOf(const Active& active) const;

  // What a sequence may begin with.
  bool MayReuse(const Slot& slot, const Active& active) const {
    return reuse_prefixes_ && slot.tenant == active.sequence->tenant();
  }
  // The tokens to compute that no slot and no kept sequence has.
  size_t RestOf(const Active& active) const;
  // The tokens that the slot's sequence has yet to compute before its next one.
  size_t LeftIn(SlotId id) const;
  // Begins with the longest prefix that a slot or a kept sequence has, if one is worth reusing: in
  // that slot, if it is idle and what it has beyond the prefix is not worth keeping; else in the
  // idle slot of the same attention socket that was unused for longest, with the prefix's chunks.
  // Without a prefix: in such a slot of the least busy socket. One that is to have a certain slot
  // begins with what this has. nullopt: no slot is idle.
  std::optional<Place> ChoosePlace(const Active& active) const;
  // The chunks that the prompt and the first token need beside those that they share.
  size_t ChunksNeeded(const Active& active, size_t shared_tokens) const;
  // Whether the place's attention socket has so many chunks beside those that the place shares. If
  // nothing runs there, it has.
  bool HasRoom(size_t chunks, const Place& place) const;

  // The idle slot gets what the place reuses; what it had is kept without it, if it is worth that
  // and there is room.
  void Take(const Place& place, uint64_t tenant);
  // Cuts the slot's tokens and its chunks to the first `tokens`, or where it can go on before them.
  void Cut(SlotId id, size_t tokens);
  void Forget(SlotId id) { Cut(id, 0); }
  // Takes the last chunk, or all, from the ended sequence of the socket that was unused for
  // longest, except `except`. Returns whether there was one.
  bool ShortenOldest(AttentionId socket, std::span<const SlotId> except);
  // Lists free chunks until the slot has `chunks`, from ended sequences if need be. Returns how
  // many it has.
  size_t Grow(SlotId id, size_t chunks);

  std::span<const SlotStatus> status() const { return status_; }  // [slot]; any thread
  void Show(SlotId id, SlotStatus::State state);
  void ShowTokens(SlotId id);  // how many it has, and of these how many it made
  void ShowChunks();

 private:
  // The tokens of the slot's sequence with which the prompt may begin.
  size_t CommonPrefix(SlotId id, const Active& active) const;
  std::optional<Place> FindPlace(const Active& active) const;
  size_t BranchOf(const Active& active, size_t begins) const;
  bool MayTake(SlotId source, size_t common, const Active& active) const;
  std::optional<SlotId> Keep(SlotId id);

  const EngineLimits& limits_;
  KvChunks& kv_;
  const bool reuse_prefixes_;
  SchedulerStatus& counters_;
  std::vector<Slot> slots_;  // [slot], then the kept sequences: KvChunks::lists()
  size_t actives_ = 0, background_ = 0;
  uint64_t uses_ = 0;
  std::vector<SlotStatus> status_;
};

}  // namespace larder::pipeline::sequences
