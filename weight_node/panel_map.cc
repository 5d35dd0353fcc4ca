#include "weight_node/panel_map.h"

#include <algorithm>

#include "base/check.h"

namespace larder::weight_node {
namespace {

std::array<std::vector<ThreadWork>, kProgramForms> OwnPanels(const ShardPlan& homes) {
  std::vector<ThreadWork> work(homes.threads.size());
  for (size_t t = 0; t < work.size(); ++t) {
    for (const PanelRange& whole : homes.threads[t].whole) work[t].push_back({whole});
  }
  return {work, work};
}

// Appends the range, split where homes change.
void Cut(const ShardPlan& homes, size_t matrix, PanelRange range,
         std::vector<PanelExtent>& extents) {
  for (size_t home = 0; home < homes.threads.size(); ++home) {
    const PanelRange own = homes.threads[home].whole[matrix];
    const uint32_t begin = std::max(range.begin, own.begin), end = std::min(range.end, own.end);
    if (begin < end) extents.push_back({home, {begin, end}});
  }
}

// Checks that each panel is computed by exactly one thread, or cut.
void CheckWhole(const ShardPlan& homes, const std::vector<ThreadWork>& work, size_t matrix) {
  std::vector<PanelRange> ranges;
  for (const ThreadWork& of_thread : work) {
    const auto& own = of_thread[matrix];
    LARDER_CHECK(std::ranges::is_sorted(own, {}, &PanelRange::begin), "panels out of order");
    ranges.insert(ranges.end(), own.begin(), own.end());
  }
  for (const ThreadShard& home : homes.threads) {
    for (size_t kind = 0; kind < home.parts.size(); ++kind) {
      for (const PanelPart& part : home.parts[kind]) {
        if (MatrixId(kind, part.matrix) == matrix && part.first())
          ranges.push_back({part.panel, part.panel + 1});
      }
    }
  }
  std::erase_if(ranges, [](const PanelRange& range) { return range.count() == 0; });
  std::ranges::sort(ranges, {}, &PanelRange::begin);
  uint32_t next = 0;
  for (const PanelRange& range : ranges) {
    LARDER_CHECK(range.begin == next, "panel {} of matrix {} is computed twice or never", next,
                 matrix);
    next = range.end;
  }
  LARDER_CHECK(homes.threads.empty() || next == homes.threads.back().whole[matrix].end,
               "{} panels of {}", next, homes.threads.back().whole[matrix].end);
}

}  // namespace

std::vector<QkvPart> QkvParts(const LayerShape& shape, std::span<const PanelExtent> extents) {
  std::vector<QkvPart> parts;
  for (const PanelExtent& extent : extents) {
    for (uint32_t panel = extent.panels.begin; panel < extent.panels.end;) {
      const size_t group = shape.GroupOf(panel);
      const uint32_t end = std::min(extent.panels.end, shape.of_group(group).end);
      parts.push_back({group, {extent.home, {panel, end}}});
      panel = end;
    }
  }
  return parts;
}

std::vector<QkvPart> QkvParts(const LayerShape& shape, std::span<const PanelExtent> extents,
                              const LayerPanels& panels) {
  const auto format = [&](uint32_t panel) {
    return panels.of(PanelMatrix::kQkv, panel).format.type;
  };
  std::vector<QkvPart> parts;
  for (const auto& [group, extent] : QkvParts(shape, extents)) {
    for (uint32_t begin = extent.panels.begin, end = begin; begin < extent.panels.end;
         begin = end) {
      while (end < extent.panels.end && format(end) == format(begin)) ++end;
      parts.push_back({group, {extent.home, {begin, end}}});
    }
  }
  return parts;
}

PanelMap::PanelMap(const ShardPlan& homes) : PanelMap(homes, OwnPanels(homes)) {}

PanelMap::PanelMap(const ShardPlan& homes,
                   const std::array<std::vector<ThreadWork>, kProgramForms>& work) {
  for (size_t form = 0; form < kProgramForms; ++form) {
    const size_t threads = homes.threads.size();
    LARDER_CHECK(work[form].size() == threads, "work of {} threads of {}", work[form].size(),
                 threads);
    work_[form].resize(threads);
    for (size_t matrix = 0; threads > 0 && matrix < homes.threads[0].whole.size(); ++matrix) {
      CheckWhole(homes, work[form], matrix);
      for (size_t t = 0; t < threads; ++t) {
        std::vector<PanelExtent>& extents = work_[form][t].emplace_back();
        for (const PanelRange& range : work[form][t][matrix]) Cut(homes, matrix, range, extents);
        if (extents.empty()) {
          const uint32_t begin = homes.threads[t].whole[matrix].begin;
          extents.push_back({t, {begin, begin}});
        }
      }
    }
  }
}

}  // namespace larder::weight_node
