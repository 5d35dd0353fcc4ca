#include "pipeline/plan/layer_split.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"

namespace larder::pipeline::inline plan {
namespace {

using Squares = unsigned __int128;  // of nanoseconds

// Of stages i and later, which have the layers from `first` on.
struct Rest {
  uint64_t slowest = UINT64_MAX;
  Squares squares = ~Squares{0};
  size_t layers = 0;  // of stage i
};

}  // namespace

std::vector<size_t> SplitLayers(size_t layers, size_t stages, size_t together,
                                const StageCost& cost) {
  if (stages == 0 || layers < stages) {
    throw Error(
        "plan: {} layers for {} sockets that hold weights; expected at least one layer per socket: "
        "leave sockets out",
        layers, stages);
  }
  if (layers < stages - 1 + together) {
    throw Error(
        "plan: {} layers for {} sockets that hold weights, and the last {} layers belong to one, "
        "since they share keys and values; expected at most {} sockets",
        layers, stages, together, layers - together + 1);
  }
  // Stage i ends at or before end(i), so that each of the later ones has its layers.
  const auto end = [&](size_t i) {
    return i + 1 == stages ? layers : layers - together - (stages - 2 - i);
  };
  std::vector<std::vector<uint64_t>> costs(stages);  // [stage]: of [first, first + count)
  const auto index = [&](size_t first, size_t count) { return first * (layers + 1) + count; };
  for (size_t i = 0; i < stages; ++i) {
    costs[i].resize((layers + 1) * (layers + 1));
    const size_t last = i == 0 ? 0 : end(i - 1);
    for (size_t first = i; first <= last; ++first) {
      const size_t least = i + 1 == stages ? layers - first : 1;
      for (size_t count = least; first + count <= end(i); ++count)
        costs[i][index(first, count)] = cost(i, first, count);
    }
  }
  // Backwards over the stages, twice: what the slowest stage takes at least, then the most even
  // division in which no stage takes longer.
  std::vector<std::vector<Rest>> rests(stages + 1, std::vector<Rest>(layers + 1));
  rests[stages][layers] = {.slowest = 0, .squares = 0};
  uint64_t most = UINT64_MAX;
  for (const bool even : {false, true}) {
    for (size_t i = stages; i-- > 0;) {
      const size_t last = i == 0 ? 0 : end(i - 1);
      for (size_t first = i; first <= last; ++first) {
        Rest best;
        const size_t least = i + 1 == stages ? layers - first : 1;
        for (size_t count = end(i) - first; count >= least; --count) {
          const Rest& rest = rests[i + 1][first + count];
          const uint64_t mine = costs[i][index(first, count)];
          if (rest.slowest == UINT64_MAX || mine > most) continue;
          const Rest with = {.slowest = std::max(rest.slowest, mine),
                             .squares = rest.squares + Squares{mine} * mine,
                             .layers = count};
          if (even ? with.squares < best.squares : with.slowest < best.slowest) best = with;
        }
        rests[i][first] = best;
      }
    }
    most = rests[0][0].slowest;
  }
  std::vector<size_t> split;
  for (size_t i = 0, first = 0; i < stages; first += split[i++])
    split.push_back(rests[i][first].layers);
  return split;
}

std::vector<size_t> SplitEvenly(size_t layers, size_t stages, size_t together) {
  return SplitLayers(layers, stages, together, [](size_t, size_t, size_t count) { return count; });
}

SocketCount CountSockets(size_t layers, uint64_t layer_bytes, uint64_t budget_bytes) {
  const auto fit = static_cast<size_t>(budget_bytes / std::max<uint64_t>(1, layer_bytes));
  const size_t sockets = CeilDiv(layers, std::clamp<size_t>(fit, 1, layers));
  return {sockets, CeilDiv(layers, sockets)};
}

}  // namespace larder::pipeline::plan
