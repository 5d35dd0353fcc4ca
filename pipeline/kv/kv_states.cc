#include "pipeline/kv/kv_states.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace larder::pipeline::inline kv {

KvStates::KvStates(size_t lists, size_t slots, std::vector<Pool> pools)
    : slots_(slots),
      pools_(std::move(pools)),
      first_(pools_.empty() ? 0 : pools_.front().chunks.begin),
      list_(pools_.empty() ? 0 : lists),
      keep_(pools_.empty() ? 0 : slots),
      mapped_(keep_.size(), kNone) {
  if (pools_.empty()) return;
  for (std::vector<State>& list : list_) list.reserve(kMostStates + 1);
  users_.resize(pools_.back().chunks.end - first_);
  uses_.resize(users_.size());
  held_.resize(users_.size());
  ends_.resize(users_.size());
  fewest_.resize(users_.size());
}

void KvStates::ResetAll() {
  for (std::vector<State>& list : list_) list.clear();
  std::ranges::fill(keep_, Wish());
  std::ranges::fill(mapped_, kNone);
  std::ranges::fill(users_, 0);
  std::ranges::fill(uses_, 0);
  std::ranges::fill(held_, 0);
}

}  // namespace larder::pipeline::kv
