// PanelMap: the home and the work of panels, apart. A panel's home is the thread in whose arena it lies
// (ShardPlan); its work is done by the thread that computes it, which may be another one and may differ
// between phases: whoever computes a panel, its bits are the same. Programs are built from the map. Pure
// data, made at set-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weight_node/shard_plan.h"

namespace larder::weight_node {

enum class Phase : uint8_t { kDecode, kPrefill };  // frames of up to decode_rows rows, of more
inline constexpr size_t kPhases = 2;

// Consecutive panels of a matrix that lie in one thread's arena.
struct PanelExtent {
  size_t home;  // the thread
  PanelRange panels;
};

// Of an extent of QKV the panels of one KV head's group.
struct QkvPart {
  size_t group;
  PanelExtent extent;
};
std::vector<QkvPart> QkvParts(const LayerShape&, std::span<const PanelExtent>);

// What one thread computes: ranges of each matrix, ascending, without overlap.
using ThreadWork = std::array<std::vector<PanelRange>, kPanelMatrices>;

class PanelMap {
 public:
  // Each thread computes what lies in its own arena.
  explicit PanelMap(const ShardPlan& homes);
  // work[phase][thread]; every panel is computed once in each phase.
  PanelMap(const ShardPlan& homes, const std::array<std::vector<ThreadWork>, kPhases>& work);

  // A thread's panels of a matrix, ascending, cut where homes change. At least one extent: one without panels
  // where the thread has no work, since it takes part in barriers all the same.
  std::span<const PanelExtent> Work(Phase phase, size_t thread, PanelMatrix matrix) const {
    return work_[static_cast<size_t>(phase)][thread][static_cast<size_t>(matrix)];
  }

 private:
  using Extents = std::array<std::vector<PanelExtent>, kPanelMatrices>;
  std::array<std::vector<Extents>, kPhases> work_;  // [phase][thread]
};

}  // namespace larder::weight_node
