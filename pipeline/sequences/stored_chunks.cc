#include "pipeline/sequences/stored_chunks.h"

#include <algorithm>

#include "base/check.h"

namespace larder::pipeline::inline sequences {

StoredChunks::StoredChunks(KvTier* tier, TokenEngine& engine, SlotTable& slots)
    : tier_(tier), engine_(engine), slots_(slots) {
  loading_.reserve(slots.limits().capacity.slots);
  LARDER_CHECK(tier == nullptr || tier->chunk_positions() == slots.chunk_positions());
}

void StoredChunks::Find(const Active& active, Place& place) const {
  const size_t most = active.most_reused();
  if (!uses_tier() || most == 0) return;
  const size_t positions = slots_.chunk_positions();
  const size_t stored =
      tier_->Find(active.to_compute().first(most), active.sequence->tenant()) * positions;
  if (stored < place.tokens + kWorthReusing) return;
  place.stored = stored;
  place.tokens -= place.tokens % positions;
  if (place.tokens == 0) place = {.slot = place.slot, .source = place.slot, .stored = stored};
}

KvJob StoredChunks::JobFor(SlotId id, KvJob::Kind kind, std::span<const int32_t> tokens,
                           size_t first) const {
  KvJob job{.kind = kind,
            .slot = id,
            .tokens = {tokens.begin(), tokens.end()},
            .tenant = slots_[id].tenant,
            .first = first,
            .alone = slots_.actives() == 1,
            .chunks = {},
            .memory = {}};
  for (size_t i = first; i < tokens.size() / slots_.chunk_positions(); ++i) {
    job.chunks.push_back(slots_.kv().chunk(id, i));
    job.memory.push_back(engine_.kv_channel().Memory(job.chunks.back()));
  }
  return job;
}

bool StoredChunks::Load(SlotId id, size_t tokens) {
  KvChunks& kv = slots_.kv();
  const size_t positions = slots_.chunk_positions(), begin = slots_[id].tokens.size();
  const size_t first = begin / positions;
  if (first * positions != begin) return false;  // a fork brought more or less
  kv.Shorten(id, begin);
  const size_t has = slots_.Grow(id, tokens / positions);
  if (has <= first) return false;
  // A chunk that was freed may be what another sequence's beginning is still to be copied from:
  // that comes with the next micro-batch, and the tier would be first.
  for (const model::KvUpdate& update : kv.updates()) {
    for (size_t i = first; i < has; ++i) {
      if (update.copied_positions > 0 && update.copied_from == kv.chunk(id, i)) return false;
    }
  }
  Active& active = slots_.active(id);
  active.loading = true;
  loading_.push_back(id);
  tier_->Start(JobFor(id, KvJob::Kind::kLoad, active.to_compute().first(has * positions), first));
  return true;
}

void StoredChunks::Store(SlotId id) {
  if (!uses_tier()) return;
  const Slot& slot = slots_[id];
  const size_t whole = slot.tokens.size() / slots_.chunk_positions();
  if (whole == 0) return;
  const size_t stored = tier_->Find(slot.tokens, slot.tenant);
  KvChunks& kv = slots_.kv();
  if (stored >= whole || tier_->chunks_to_store() > kv.pool(kv.socket_of(id)) / 2) return;
  const std::span<const int32_t> tokens = slot.tokens;
  KvJob job =
      JobFor(id, KvJob::Kind::kStore, tokens.first(whole * slots_.chunk_positions()), stored);
  for (const uint32_t chunk : job.chunks) kv.Hold(chunk);
  tier_->Start(std::move(job));
}

// Returns whether it was a load.
bool StoredChunks::TakeBack(const KvJob& job) {
  KvChunks& kv = slots_.kv();
  if (job.kind == KvJob::Kind::kStore) {
    for (const uint32_t chunk : job.chunks) kv.LetGo(chunk);
    return false;
  }
  Slot& slot = slots_[job.slot];
  const size_t end = (job.first + job.done) * slots_.chunk_positions();
  kv.Extend(job.slot, end);
  slot.tokens.assign(job.tokens.begin(), job.tokens.begin() + static_cast<std::ptrdiff_t>(end));
  slot.active->loading = false;
  std::erase(loading_, job.slot);
  if (slot.active->ended) kv.Shorten(job.slot, end);
  return true;
}

bool StoredChunks::DropStores() {
  bool any = false;
  while (const std::optional<KvJob> job = tier_ != nullptr ? tier_->Drop() : std::nullopt) {
    TakeBack(*job);
    any = true;
  }
  return any;
}

void StoredChunks::Watch() {
  if (tier_ != nullptr) tier_->Watch();
}

void StoredChunks::Wait(int ms) {
  if (tier_ != nullptr) tier_->Wait(ms);
}

void StoredChunks::ChainWasLost() {
  if (tier_ != nullptr) tier_->Abandon();
  loading_.clear();
}

}  // namespace larder::pipeline::sequences
