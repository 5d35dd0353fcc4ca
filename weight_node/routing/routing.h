// Routing: which experts a row's router chooses, and the rows of each expert. Pure functions on
// memory that was allocated at set-up; a row's choice depends on nothing but its logits, so no
// batch, thread or placement changes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"
#include "kernels/rows/elementwise.h"
#include "model/layer/layer_spec.h"

namespace larder::weight_node::inline routing {

// model::ExpertSpec, in float32.
struct RouterRule {
  size_t experts = 0, used = 0;
  model::ExpertGating gating = model::ExpertGating::kSoftmax;
  bool normalise = true;
  float scale = 1.0f;
  const float* bias = nullptr;         // [experts], or null
  const float* scales = nullptr;       // [experts]: what multiplies scale; or null
  size_t groups = 1, groups_used = 1;  // a divisor of experts
  bool shared_gate = false;  // behind the experts' logits is that of the shared expert's sigmoid
};

inline constexpr size_t kMostUsed = 64;  // experts of a row
inline constexpr size_t kMostGroups = 64;

// What was chosen for rows: of row m its experts, ascending, and their weights.
struct ChosenRows {
  uint16_t* experts = nullptr;  // [rows][used]
  float* weights = nullptr;     // [rows][used]
  float* shared = nullptr;      // [rows]: the weight of the shared expert
};

// The floats of a row's logits: the experts' and the shared expert's, padded to whole vectors.
constexpr size_t RouterFloats(size_t experts) { return RoundUp(experts + 1, 16); }

// Chooses for row m by its logits [RouterFloats], which are overwritten, as is by [RouterFloats].
// Experts are ordered by logit, or with a bias by p + bias, or with groups by p; of equal ones the
// lower is chosen. Of groups those with the largest sums of their two largest values. With
// exponentials from softmax_chunk, whose sums are in its order:
//   softmax, normalised, without a bias: w = Exp(l - max) / sum over the chosen;
//   other softmax: p = Exp(l - max) / sum over all; sigmoid: p = 1 / (1 + Exp(-l)); w = p, or
//   normalised p / (sum of the chosen, ascending), of a sigmoid's 1e-20 + sum.
// Then w = w * scale, or w * (scale * scales[expert]). NaN is never chosen before a number; any
// input gives `used` experts.
void ChooseExperts(const RouterRule&, const kernels::Elementwise&, float* logits, float* by,
                   const ChosenRows&, size_t m);

// The rows of each expert, ascending: pairs first[e] to first[e + 1] are expert e's.
struct RoutingTable {
  uint32_t* first = nullptr;  // [experts + 1]
  uint32_t* row = nullptr;    // [pairs]
  float* weight = nullptr;    // [pairs]
  uint32_t count(size_t expert) const { return first[expert + 1] - first[expert]; }
};
// The work of a unit of an expert with so many rows: up to four take as long as reading it.
constexpr uint64_t WorkOf(uint32_t rows) { return rows == 0 ? 0 : rows < 4 ? 4 : rows; }
// A thread's part of the work of all chosen experts' units, experts ascending, each with `units`.
// The thread has the units whose work begins in its part.
Range<uint64_t> PartOfWork(const RoutingTable&, size_t experts, size_t units, size_t thread,
                           size_t threads);

// Of rows [begin, begin + rows).
void SortByExpert(const RouterRule&, const ChosenRows&, size_t begin, size_t rows,
                  const RoutingTable&);

}  // namespace larder::weight_node::routing
