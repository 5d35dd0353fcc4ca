#include "pipeline/sequences/slot_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/memory.h"

namespace larder::pipeline::inline sequences {

SlotTable::SlotTable(TokenEngine& engine, bool reuse_prefixes, SchedulerStatus& status)
    : limits_(engine.limits()),
      kv_(engine.kv()),
      reuse_prefixes_(reuse_prefixes),
      counters_(status),
      slots_(kv_.lists()),
      status_(limits_.capacity.slots) {
  // So that steps do not allocate.
  for (SlotId id(0); id < end(); ++id) slots_[id.index()].tokens.reserve(limits_.capacity.context);
  ShowChunks();
}

void SlotTable::Seat(SlotId id, std::unique_ptr<Active> active) {
  ++actives_;
  background_ += active->background;
  slots_[id.index()].active = std::move(active);
  Show(id, SlotStatus::kPrefill);
}

std::unique_ptr<Active> SlotTable::Unseat(SlotId id) {
  std::unique_ptr<Active> active = std::move(slots_[id.index()].active);
  --actives_;
  background_ -= active->background;
  Show(id, SlotStatus::kIdle);
  return active;
}

std::optional<SlotId> SlotTable::TakenSlotOf(const Active& active) const {
  const std::optional<SlotId> wanted = active.sequence->slot();
  return wanted && slots_[wanted->index()].active ? wanted : std::nullopt;
}

size_t SlotTable::RestOf(const Active& active) const {
  size_t common = 0;
  for (SlotId id(0); id < end_of_kept(); ++id) common = std::max(common, CommonPrefix(id, active));
  return active.to_compute().size() - common;
}

size_t SlotTable::LeftIn(SlotId id) const {
  const Slot& slot = slots_[id.index()];
  return slot.active->to_compute().size() - slot.tokens.size();
}

size_t SlotTable::CommonPrefix(SlotId id, const Active& active) const {
  const Slot& slot = slots_[id.index()];
  return MayReuse(slot, active) ? kv_.Usable(id, active.CommonWith(slot.tokens)) : 0;
}

std::optional<Place> SlotTable::ChoosePlace(const Active& active) const {
  std::optional<Place> place = FindPlace(active);
  if (place && kv_.shape().states()) place->branch = BranchOf(active, place->tokens);
  return place;
}

// The tokens that it has in common with another sequence, if it can't go on there and begins with
// `begins` tokens instead: enough of them to compute them only once more.
size_t SlotTable::BranchOf(const Active& active, size_t begins) const {
  size_t common = 0;
  for (SlotId id(0); id < end_of_kept(); ++id) {
    if (MayReuse(slots_[id.index()], active))
      common = std::max(common, active.CommonWith(slots_[id.index()].tokens));
  }
  return common >= begins + kWorthReusing ? common : 0;
}

std::optional<Place> SlotTable::FindPlace(const Active& active) const {
  if (const std::optional<SlotId> wanted = active.sequence->slot()) {
    const Slot& slot = slots_[wanted->index()];
    if (slot.active) return std::nullopt;
    const size_t common = CommonPrefix(*wanted, active);
    return Place{*wanted, *wanted, common, MayTake(*wanted, common, active)};
  }
  const size_t prompt_tokens = active.to_compute().size();
  std::vector<size_t> used(sockets(), 0);
  std::vector<std::optional<SlotId>> oldest(used.size());  // [socket]: the idle slot unused for
                                                           // longest
  for (SlotId id(0); id < end(); ++id) {
    const Slot& slot = slots_[id.index()];
    const AttentionId socket = kv_.socket_of(id);
    used[socket.index()] += slot.active != nullptr;
    if (slot.active) continue;
    std::optional<SlotId>& longest = oldest[socket.index()];
    if (!longest || slot.last_used < slots_[longest->index()].last_used) longest = id;
  }
  std::optional<Place> best;
  for (SlotId id(0); id < end_of_kept(); ++id) {
    const size_t common = CommonPrefix(id, active);
    if (common < std::min(kWorthReusing, (prompt_tokens + 1) / 2) || common == 0) continue;
    if (best && best->tokens >= common) continue;
    const std::optional<SlotId> other = oldest[kv_.socket_of(id).index()];
    if (!other) continue;
    const bool takes = MayTake(id, common, active);
    best = Place{takes && id < end() ? id : *other, id, common, takes};
  }
  if (best) return best;
  const auto share = [&](AttentionId socket) {
    return static_cast<double>(used[socket.index()]) /
           static_cast<double>(kv_.shape().SlotsOf(socket.index()));
  };
  const auto key = [&](SlotId slot) {
    return std::pair(share(kv_.socket_of(slot)), slots_[slot.index()].last_used);
  };
  for (const std::optional<SlotId>& slot : oldest) {
    if (slot && (!best || key(*slot) < key(best->slot))) best = Place{*slot, *slot, 0};
  }
  return best;
}

size_t SlotTable::ChunksNeeded(const Active& active, size_t shared_tokens) const {
  const size_t positions = chunk_positions();
  const size_t chunks =
      std::min(active.to_compute().size() / positions + 1, kv_.shape().slot_chunks()) -
      shared_tokens / positions;
  return std::min(chunks, kv_.most_chunks());
}

// Whether a sequence that has ended is better cut to its first `common` tokens and gone on with
// than kept: if what it has beyond them is little, or if for a copy of the prefix others would lose
// as much.
bool SlotTable::MayTake(SlotId source, size_t common, const Active& active) const {
  const Slot& slot = slots_[source.index()];
  if (slot.active) return false;
  const size_t rest = slot.tokens.size() - common;
  if (rest < kWorthReusing) return true;
  const size_t needed = ChunksNeeded(active, common);
  return kv_.free(kv_.socket_of(source)) < needed && CeilDiv(rest, chunk_positions()) <= needed;
}

bool SlotTable::HasRoom(size_t needed, const Place& place) const {
  const AttentionId socket = kv_.socket_of(place.slot);
  size_t room = kv_.free(socket);
  bool runs = false;
  for (SlotId id(0); id < end_of_kept() && room < needed; ++id) {
    if (kv_.socket_of(id) != socket) continue;
    runs = runs || slots_[id.index()].active;
    if (id == place.source && place.tokens > 0) {
      // what it takes over, the last shared chunk too
      const size_t positions = chunk_positions();
      const size_t shared = std::max(kv_.first(id), place.tokens / positions);
      if (place.takes) room += CeilDiv(kv_.length(id), positions) - shared;
    } else if (!slots_[id.index()].active) {
      room += kv_.own(id);
    }
  }
  return room >= needed || !runs;
}

void SlotTable::Take(const Place& place, uint64_t tenant) {
  const SlotId id = place.slot;
  Slot& slot = slots_[id.index()];
  size_t reused = place.tokens;
  SlotId source = place.source;
  if (reused > 0) Use(source);
  if (!(place.takes && source == id) && slot.tokens.size() >= kWorthReusing) {
    const std::optional<SlotId> kept = Keep(id);
    if (source == id && reused > 0) source = kept.value_or(id);
  }
  if (source != id) {
    const std::vector<int32_t>& theirs = slots_[source.index()].tokens;
    const bool taken = place.takes && source >= end() && kv_.Restore(id, source);
    if (taken) {
      kv_.Shorten(id, reused);  // what it is to go on from stays
    } else {
      while (kv_.Short(kv_.socket_of(id)) &&
             ShortenOldest(kv_.socket_of(id), std::array{id, source})) {
      }
      reused = kv_.Fork(id, source, reused);
    }
    // Not by assignment, which could give away what is reserved.
    slot.tokens.assign(theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(reused));
    if (taken) slots_[source.index()].tokens.clear();
  } else {
    slot.tokens.resize(reused);
    kv_.Shorten(id, reused);
  }
  slot.tenant = tenant;
  Use(id);
}

void SlotTable::Cut(SlotId id, size_t tokens) {
  std::vector<int32_t>& has = slots_[id.index()].tokens;
  tokens = kv_.Usable(id, tokens);
  has.resize(std::min(has.size(), tokens));
  kv_.Shorten(id, tokens);
  if (id >= end()) return;
  ShowNumber(status_[id.index()].cached_tokens, has.size());
  if (tokens == 0) ShowNumber(status_[id.index()].generated_tokens, 0);
}

// Keeps the idle slot's sequence without it, in the place of the one unused for longest, and
// returns that; nullopt: all are in use since.
std::optional<SlotId> SlotTable::Keep(SlotId id) {
  std::optional<SlotId> oldest;
  for (SlotId kept = end(); kept < end_of_kept(); ++kept) {
    const auto used = [this](SlotId of) { return slots_[of.index()].last_used; };
    if (!oldest || used(kept) < used(*oldest)) oldest = kept;
  }
  Slot& slot = slots_[id.index()];
  if (!oldest || slots_[oldest->index()].last_used > slot.last_used) return std::nullopt;
  Slot& kept = slots_[oldest->index()];
  kv_.Keep(*oldest, id);
  kept.tokens = slot.tokens;
  kept.tenant = slot.tenant;
  kept.last_used = slot.last_used;
  slot.tokens.clear();
  return oldest;
}

bool SlotTable::ShortenOldest(AttentionId socket, std::span<const SlotId> except) {
  std::optional<SlotId> oldest;
  for (SlotId id(0); id < end_of_kept(); ++id) {
    const Slot& slot = slots_[id.index()];
    if (slot.active || kv_.length(id) == 0 || kv_.socket_of(id) != socket ||
        std::ranges::find(except, id) != except.end())
      continue;
    if (!oldest || slot.last_used < slots_[oldest->index()].last_used) oldest = id;
  }
  if (!oldest) return false;
  Cut(*oldest, (kv_.length(*oldest) - 1) / chunk_positions() * chunk_positions());
  return true;
}

size_t SlotTable::Grow(SlotId id, size_t chunks) {
  for (;;) {
    const size_t has = kv_.Grow(id, chunks);
    if (has == chunks || !kv_.Short(kv_.socket_of(id)) ||
        !ShortenOldest(kv_.socket_of(id), std::array{id}))
      return has;
  }
}

void SlotTable::Show(SlotId id, SlotStatus::State state) {
  ShowNumber(status_[id.index()].state, state);
}

void SlotTable::ShowTokens(SlotId id) {
  const Slot& slot = slots_[id.index()];
  ShowNumber(status_[id.index()].cached_tokens, slot.tokens.size());
  if (slot.active) ShowNumber(status_[id.index()].generated_tokens, slot.active->generated);
}

void SlotTable::ShowChunks() {
  size_t all = 0, free = 0;
  for (AttentionId socket(0); socket.index() < sockets(); ++socket) {
    all += kv_.pool(socket);
    free += kv_.free(socket);
  }
  ShowNumber(counters_.kv_chunks, all);
  ShowNumber(counters_.used_kv_chunks, all - free);
  ShowNumber(counters_.shared_kv_chunks, kv_.shared());
  ShowNumber(counters_.kept_states, kv_.kept_states());
}

}  // namespace larder::pipeline::sequences
