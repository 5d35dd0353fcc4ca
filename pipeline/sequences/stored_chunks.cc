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
  place.tokens = slots_.kv().UsableChunks(place.source, place.tokens) * positions;
  if (place.tokens == 0) place = {.slot = place.slot, .source = place.slot, .stored = stored};
}

KvJob StoredChunks::JobFor(SlotId id, KvJob::Kind kind, std::span<const int32_t> tokens) const {
  KvJob job{.kind = kind,
            .slot = id,
            .tokens = {tokens.begin(), tokens.end()},
            .tenant = slots_[id].tenant,
            .alone = slots_.actives() == 1,
            .pieces = slots_.kv().Pieces(id, tokens.size() / slots_.chunk_positions())};
  for (KvPiece& piece : job.pieces) piece.memory = engine_.kv_channel().Memory(piece.chunk);
  return job;
}

bool StoredChunks::Load(SlotId id, size_t tokens) {
  KvChunks& kv = slots_.kv();
  const size_t positions = slots_.chunk_positions(), begin = slots_[id].tokens.size();
  const size_t first = begin / positions;
  if (first * positions != begin) return false;  // a fork brought more or less
  kv.Shorten(id, begin);
  const std::vector<KvPiece> had = kv.Pieces(id, first);
  const size_t has = slots_.Grow(id, tokens / positions);
  if (has <= first) {
    slots_.Cut(id, kv.length(id));
    return false;
  }
  Active& active = slots_.active(id);
  KvJob job = JobFor(id, KvJob::Kind::kLoad, active.to_compute().first(has * positions));
  for (KvPiece& piece : job.pieces) {
    // Of another place in the sequence it would be one that was given up, and got again.
    piece.moves = std::ranges::none_of(had, [&](const KvPiece& one) {
      return one.chunk == piece.chunk && one.index == piece.index;
    });
    // A chunk that was freed may be what another sequence's beginning is still to be copied from:
    // that comes with the next micro-batch, and the tier would be first.
    for (const model::KvUpdate& update : kv.updates()) {
      if (!piece.moves || update.copied_positions == 0 || update.copied_from != piece.chunk)
        continue;
      slots_.Cut(id, kv.Usable(id, begin));
      return false;
    }
  }
  active.loading = true;
  loading_.push_back(id);
  tier_->Start(std::move(job));
  return true;
}

void StoredChunks::Store(SlotId id) {
  if (!uses_tier()) return;
  const Slot& slot = slots_[id];
  KvChunks& kv = slots_.kv();
  const size_t positions = slots_.chunk_positions();
  const size_t whole = kv.UsableChunks(id, slot.tokens.size());
  if (whole == 0 || tier_->chunks_to_store() > kv.pool(kv.socket_of(id)) / 2) return;
  const std::span<const int32_t> tokens = slot.tokens;
  KvJob job = JobFor(id, KvJob::Kind::kStore, tokens.first(whole * positions));
  tier_->FindPieces(job);
  job.stores = job.moving();
  if (job.stores == 0) return;
  std::erase_if(job.pieces, [&](const KvPiece& piece) {
    // What is still to be copied there comes with the next micro-batch.
    const auto writes = [&](const model::KvUpdate& update) {
      return update.copied_positions > 0 && update.chunk == piece.chunk;
    };
    return std::ranges::any_of(kv.updates(), writes) || !kv.Hold(piece);
  });
  tier_->Start(std::move(job));
}

// Returns whether it was a load.
bool StoredChunks::TakeBack(const KvJob& job) {
  KvChunks& kv = slots_.kv();
  if (job.kind == KvJob::Kind::kStore) {
    for (const KvPiece& piece : job.pieces) kv.LetGo(piece);
    return false;
  }
  Slot& slot = slots_[job.slot];
  const size_t positions = slots_.chunk_positions();
  if (job.done == job.pieces.size()) {
    kv.Extend(job.slot, job.tokens.size());
  } else if (kv.shape().plain()) {
    kv.Extend(job.slot, job.done * positions);
  }
  // Of other classes a beginning is of no use.
  const size_t end = kv.Usable(job.slot, kv.length(job.slot));
  kv.Shorten(job.slot, end);
  slot.tokens.assign(job.tokens.begin(), job.tokens.begin() + static_cast<std::ptrdiff_t>(end));
  slot.active->loading = false;
  std::erase(loading_, job.slot);
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
