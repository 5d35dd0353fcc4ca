// PanelMap: who stores and who computes each panel. A panel's home is the thread in whose arena it
// lies (ShardPlan). Its work is done by the thread that computes it, which may be another one and
// may differ between the forms of a Program; the bits are the same whichever thread that is.
// Programs are built from the map. Parts of panels that are cut (ThreadShard::parts) are not in it:
// each is computed at home. Plain data, made at set-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weight_node/shard_plan.h"

namespace larder::weight_node {

// The two Programs of a layer. Micro-batches of up to few_rows rows: each thread normalises all
// rows for itself, which saves a barrier. More rows: each thread normalises its share of them.
enum class ProgramForm : uint8_t { kFewRows, kManyRows };
inline constexpr size_t kProgramForms = 2;

// Consecutive panels of a matrix that lie in one thread's arena.
struct PanelExtent {
  size_t home;  // index of the thread
  PanelRange panels;
};

// The part of a QKV extent that belongs to one KV head's group.
struct QkvPart {
  size_t group;
  PanelExtent extent;
};
std::vector<QkvPart> QkvParts(const LayerShape&, std::span<const PanelExtent>);
// The same, cut where the panels' format changes.
std::vector<QkvPart> QkvParts(const LayerShape&, std::span<const PanelExtent>, const LayerPanels&);

// What one thread computes: ranges of each matrix, by MatrixId, ascending and disjoint.
using ThreadWork = std::vector<std::vector<PanelRange>>;

class PanelMap {
 public:
  // Each thread computes the panels in its own arena.
  explicit PanelMap(const ShardPlan& homes);
  // work[form][thread]; each whole panel is computed exactly once in each form.
  PanelMap(const ShardPlan& homes, const std::array<std::vector<ThreadWork>, kProgramForms>& work);

  // A thread's panels of a matrix of a kind of layer, ascending, split where homes change. There is
  // at least one extent, even an empty one, because a thread without work still takes part in the
  // barriers.
  std::span<const PanelExtent> Work(ProgramForm form, size_t thread, size_t kind,
                                    PanelMatrix matrix) const {
    return work_[static_cast<size_t>(form)][thread][MatrixId(kind, matrix)];
  }

 private:
  using Extents = std::vector<std::vector<PanelExtent>>;  // by MatrixId
  std::array<std::vector<Extents>, kProgramForms> work_;  // [form][thread]
};

}  // namespace larder::weight_node
