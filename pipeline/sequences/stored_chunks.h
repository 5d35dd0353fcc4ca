// StoredChunks: the scheduler's side of a KvTier: what prompts begin with that is in files, and
// what ended sequences leave there. It keeps one thing true: a chunk that the tier reads or writes
// is nobody else's until the tier gives it back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/engine/token_engine.h"
#include "pipeline/kv_store/kv_tier.h"
#include "pipeline/sequences/slot_table.h"

namespace larder::pipeline::inline sequences {

class StoredChunks {
 public:
  // tier: null: nothing is stored. All must outlive it.
  StoredChunks(KvTier* tier, TokenEngine& engine, SlotTable& slots);

  // Whether what ended sequences have goes to files.
  bool any() const { return uses_tier(); }
  // Sees whether files have more of the prompt than `place`; then what `place` reuses ends with a
  // whole chunk.
  void Find(const Active& active, Place& place) const;
  // Has the tier read the chunks that follow the tokens of the slot, up to `tokens` or as far as
  // there are free chunks. Returns whether it does: then the slot is loading().
  bool Load(SlotId id, size_t tokens);
  std::span<const SlotId> loading() const { return loading_; }  // in order of admission
  // Has the tier write the idle slot's whole chunks that are not in files yet, unless it has a lot
  // to do.
  void Store(SlotId id);
  // Takes back what the tier has moved. Calls loaded(slot) for each slot that is no longer loading.
  template <typename Loaded>
  void Take(Loaded loaded) {
    while (tier_ != nullptr) {
      const std::optional<KvJob> job = tier_->Take();
      if (!job) return;
      if (TakeBack(*job)) loaded(job->slot);
    }
  }
  // Takes back what the tier would write later. Returns whether there was anything.
  bool DropStores();

  // That have begun, or will, and are not taken back.
  size_t jobs() const { return tier_ != nullptr ? tier_->jobs() : 0; }
  // Whether these go on only in micro-batches and in Wait.
  bool needs_steps() const { return tier_ != nullptr && tier_->needs_steps(); }
  // Both throw ChainLostError: KvTier.
  void Watch();
  void Wait(int ms);

  // All chunks are lost, and with them what is being moved.
  void ChainWasLost();

 private:
  bool uses_tier() const { return tier_ != nullptr && slots_.reuses(); }
  // For the slot's first `tokens`, whole chunks of them.
  KvJob JobFor(SlotId id, KvJob::Kind kind, std::span<const int32_t> tokens) const;
  bool TakeBack(const KvJob& job);

  KvTier* const tier_;
  TokenEngine& engine_;
  SlotTable& slots_;
  std::vector<SlotId> loading_;
};

}  // namespace larder::pipeline::sequences
