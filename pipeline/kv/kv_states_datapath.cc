#include <algorithm>
#include <utility>

#include "base/check.h"
#include "pipeline/kv/kv_states.h"

namespace larder::pipeline::inline kv {

size_t KvStates::Usable(SlotId list, size_t positions) const {
  const std::vector<State>& states = list_[list.index()];
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    if (state->position <= positions) return state->position;
  }
  return 0;
}

size_t KvStates::Begin(SlotId slot, AttentionId socket, size_t begin, model::KvUpdate* out) {
  std::vector<State>& states = list_[slot.index()];
  const bool begun = begin == 0 && !states.empty() && states.back().position == 0;
  if (!begun) Cut(slot, begin);
  const Wish wish = std::exchange(keep_[slot.index()], Wish());
  const bool keep = wish.stay != Stay::kNot && wish.position == begin && begin > 0;
  uint32_t copied = kNone;
  if (states.empty()) {
    const uint32_t chunk = Take(socket);
    LARDER_CHECK(chunk != kNone);  // another slot's sequence does not end with it
    Append(slot, {0, chunk});
  } else if (keep || users_[states.back().chunk - first_] > 1) {
    states.back().until_next = keep && wish.stay == Stay::kUntilNext;
    if (states.back().until_next) ReleasePassed(slot);
    const State end = states.back();
    uses_[end.chunk - first_] = ++use_;
    const uint32_t chunk = Take(socket);
    if (chunk == kNone) {
      GiveUp(end.chunk);
      LARDER_CHECK(users_[end.chunk - first_] == 1);
    } else {
      copied = end.chunk;
      Append(slot, {begin, chunk});
    }
  }
  const uint32_t chunk = states.back().chunk;
  uses_[chunk - first_] = ++use_;
  if (std::exchange(mapped_[slot.index()], chunk) == chunk && copied == kNone) return 0;
  *out = {.slot = slot,
          .index = 0,
          .chunk = chunk,
          .copied_from = copied == kNone ? 0 : copied,
          .copied_positions = copied == kNone ? 0u : 1u};
  return 1;
}

void KvStates::Extend(SlotId slot, size_t end) { list_[slot.index()].back().position = end; }

void KvStates::KeepEnd(SlotId slot, Stay stay) {
  const std::vector<State>& states = list_[slot.index()];
  keep_[slot.index()] = states.empty() ? Wish() : Wish{states.back().position, stay};
}

void KvStates::ReleasePassed(SlotId slot) {
  std::vector<State>& states = list_[slot.index()];
  const auto passed = [this](const State& state) {
    if (!state.until_next) return false;
    Release(state.chunk);
    return true;
  };
  const auto end = states.end() - 1;
  states.erase(std::remove_if(states.begin(), end, passed), end);  // datapath-ok: it gets shorter
}

void KvStates::Cut(SlotId list, size_t positions) {
  std::vector<State>& states = list_[list.index()];
  while (!states.empty() && (states.back().position > positions || positions == 0)) {
    Release(states.back().chunk);
    states.pop_back();
  }
  LARDER_CHECK(positions == 0 || states.back().position == positions);
}

void KvStates::Share(SlotId to, SlotId from, size_t positions) {
  LARDER_CHECK(list_[to.index()].empty());
  for (const State& state : list_[from.index()]) {
    if (state.position > positions) break;
    ++users_[state.chunk - first_];
    Append(to, state);
  }
  uses_[list_[to.index()].back().chunk - first_] = ++use_;
}

void KvStates::Move(SlotId to, SlotId from) {
  LARDER_CHECK(list_[to.index()].empty());
  std::swap(list_[to.index()], list_[from.index()]);
}

uint32_t KvStates::Add(SlotId slot, AttentionId socket, size_t position) {
  const uint32_t chunk = Take(socket);
  if (chunk != kNone) Append(slot, {position, chunk});
  return chunk;
}

// The slots' sequences can always go on, each with a chunk that nobody holds.
bool KvStates::Hold(uint32_t chunk) {
  const Pool& pool = PoolOf(chunk);
  size_t needed = pool.slots + 1;
  for (size_t i = pool.chunks.begin; i < pool.chunks.end; ++i) needed += held_[i - first_] > 0;
  if (needed > pool.chunks.count()) return false;
  ++held_[chunk - first_];
  ++users_[chunk - first_];
  return true;
}

void KvStates::LetGo(uint32_t chunk) {
  --held_[chunk - first_];
  Release(chunk);
}

const KvStates::Pool& KvStates::PoolOf(uint32_t chunk) const {
  return *std::ranges::find_if(pools_,
                               [&](const Pool& pool) { return pool.chunks.contains(chunk); });
}

size_t KvStates::kept() const {
  MarkEnds();
  size_t kept = 0;
  for (size_t i = 0; i < users_.size(); ++i) kept += users_[i] > 0 && ends_[i] == 0;
  return kept;
}

void KvStates::Release(uint32_t chunk) { --users_[chunk - first_]; }

void KvStates::MarkEnds() const {
  std::ranges::fill(ends_, 0);
  for (size_t slot = 0; slot < slots_; ++slot) {
    if (!list_[slot].empty()) ends_[list_[slot].back().chunk - first_] = 1;
  }
  for (size_t i = 0; i < held_.size(); ++i) ends_[i] |= held_[i] > 0;
}

uint32_t KvStates::Take(AttentionId socket) {
  const Range<size_t> pool = pools_[socket.index()].chunks;
  for (size_t chunk = pool.begin; chunk < pool.end; ++chunk) {
    if (users_[chunk - first_] > 0) continue;
    users_[chunk - first_] = 1;
    return static_cast<uint32_t>(chunk);
  }
  MarkEnds();
  CountLists();
  uint32_t worst = kNone;
  for (size_t chunk = pool.begin; chunk < pool.end; ++chunk) {
    const auto key = [this](size_t of) {
      return std::pair(~fewest_[of - first_], uses_[of - first_]);
    };
    if (ends_[chunk - first_] == 0 && (worst == kNone || key(chunk) < key(worst)))
      worst = static_cast<uint32_t>(chunk);
  }
  if (worst == kNone) return kNone;
  GiveUp(worst);
  users_[worst - first_] = 1;
  return worst;
}

void KvStates::CountLists() {
  std::ranges::fill(fewest_, kMostStates + 1);
  for (const std::vector<State>& states : list_) {
    for (const State& state : states) {
      size_t& fewest = fewest_[state.chunk - first_];
      fewest = std::min(fewest, states.size());
    }
  }
}

void KvStates::GiveUp(uint32_t chunk) {
  for (size_t i = 0; i < list_.size(); ++i) {
    std::vector<State>& states = list_[i];
    const size_t loose = states.size() - (i < slots_ && !states.empty() ? 1 : 0);
    for (size_t k = loose; k > 0; --k) {
      if (states[k - 1].chunk != chunk) continue;
      Release(chunk);
      // datapath-ok: it gets shorter
      states.erase(states.begin() + static_cast<std::ptrdiff_t>(k - 1));
    }
  }
}

void KvStates::Append(SlotId list, State state) {
  std::vector<State>& states = list_[list.index()];
  if (states.size() == kMostStates) {
    const auto oldest =
        std::ranges::min_element(states.begin(), states.end() - 1, {},
                                 [this](const State& one) { return uses_[one.chunk - first_]; });
    Release(oldest->chunk);
    states.erase(oldest);  // datapath-ok: it gets shorter
  }
  states.push_back(state);  // datapath-ok: within what the constructor reserved
  uses_[state.chunk - first_] = std::max(uses_[state.chunk - first_], use_);
}

}  // namespace larder::pipeline::kv
