#include "pipeline/plan/layer_split.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"

namespace larder::pipeline::inline plan {

std::vector<size_t> ShareLayers(size_t layers, std::span<const uint64_t> weights, size_t together) {
  if (weights.empty() || layers < weights.size()) {
    throw Error(
        "plan: {} layers for {} sockets that hold weights; expected at least one layer per socket: "
        "leave sockets out",
        layers, weights.size());
  }
  const size_t least = weights.size() - 1 + together;
  if (layers < least) {
    throw Error(
        "plan: {} layers for {} sockets that hold weights, and the last {} layers belong to one, "
        "since they share keys and values; expected at most {} sockets",
        layers, weights.size(), together, layers - together + 1);
  }
  std::vector<size_t> share(weights.size(), 1);
  share.back() = together;
  for (size_t placed = least; placed < layers; ++placed) {
    size_t best = 0;
    for (size_t i = 1; i < weights.size(); ++i) {
      // (share[i] + 1) / weights[i] < (share[best] + 1) / weights[best]; 128 bits, since budgets
      // have 40
      const auto mine =
          static_cast<unsigned __int128>(share[i] + 1) * std::max<uint64_t>(1, weights[best]);
      const auto other =
          static_cast<unsigned __int128>(share[best] + 1) * std::max<uint64_t>(1, weights[i]);
      if (mine < other) best = i;
    }
    ++share[best];
  }
  return share;
}

SocketCount CountSockets(size_t layers, uint64_t layer_bytes, uint64_t budget_bytes) {
  const auto fit = static_cast<size_t>(budget_bytes / std::max<uint64_t>(1, layer_bytes));
  const size_t sockets = CeilDiv(layers, std::clamp<size_t>(fit, 1, layers));
  return {sockets, CeilDiv(layers, sockets)};
}

}  // namespace larder::pipeline::plan
