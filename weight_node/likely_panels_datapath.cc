#include <algorithm>
#include <array>
#include <limits>

#include "weight_node/likely_panels.h"

namespace larder::weight_node {

namespace {

// NaN is skipped; -infinity if nothing is left.
float LargestOf(std::span<const float> x) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> largest;
  largest.fill(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      largest[lane] = x[i + lane] > largest[lane] ? x[i + lane] : largest[lane];
  }
  for (; i < x.size(); ++i) largest[0] = x[i] > largest[0] ? x[i] : largest[0];
  return *std::ranges::max_element(largest);
}

}  // namespace

LikelyPanels::LikelyPanels(std::span<const float> largest) : largest_(LargestOf(largest)) {
  std::array<uint32_t, kBins + 1> panels = {};
  const float least = largest_ - static_cast<float>(kBins) / kBinsPerUnit;
  for (const float of_panel : largest) {
    if (of_panel >= least) ++panels[Bin(of_panel)];
  }
  const size_t most = std::max(kLeast, largest.size() / kMostShare);
  for (size_t taken = 0; end_ < kBins && taken + panels[end_] <= most; ++end_)
    taken += panels[end_];
}

}  // namespace larder::weight_node
