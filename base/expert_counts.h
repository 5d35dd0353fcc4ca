// ExpertCounts: what the router of a layer with experts has chosen, as plain numbers that are read
// once from its counters (weight_node/routing/expert_counters.h) and passed on whole to tables,
// metrics and the page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace larder {

inline double RatioOf(uint64_t a, uint64_t b) {
  return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
}

struct ExpertCounts {
  size_t layer = 0;     // its number in the model
  size_t used = 0;      // experts of a row
  uint64_t steps = 0;   // micro-batches, or halves of them
  uint64_t active = 0;  // over all steps: the experts that some row chose, whose weights were read
  uint64_t followed = 0;       // rows right behind another one of their sequence
  uint64_t again = 0;          // over those rows: the chosen experts that the row before chose, too
  std::vector<uint64_t> rows;  // [expert]
  bool operator==(const ExpertCounts&) const = default;

  // What was counted since `before`, of the same layer.
  ExpertCounts Since(const ExpertCounts& before) const {
    ExpertCounts since = *this;
    since.steps -= before.steps;
    since.active -= before.active;
    since.followed -= before.followed;
    since.again -= before.again;
    for (size_t e = 0; e < rows.size(); ++e) since.rows[e] -= before.rows[e];
    return since;
  }
  uint64_t pairs() const { return std::accumulate(rows.begin(), rows.end(), uint64_t{0}); }
  // The experts that a step reads.
  double active_per_step() const { return RatioOf(active, steps); }
  // The share of a row's experts that the row before has chosen as well. By chance it would be
  // used / experts.
  double reuse() const { return RatioOf(again, followed * used); }
  // The rows of the busiest expert over the mean: 1 if all are chosen equally often.
  double skew() const {
    if (rows.empty()) return 0;
    return RatioOf(*std::max_element(rows.begin(), rows.end()) * rows.size(), pairs());
  }
  // The share of pairs (row, expert) whose expert is among the `kept` that are chosen most often.
  double hit_rate(size_t kept) const {
    std::vector<uint64_t> most = rows;
    std::sort(most.begin(), most.end(), std::greater<>());
    most.resize(std::min(kept, most.size()));
    return RatioOf(std::accumulate(most.begin(), most.end(), uint64_t{0}), pairs());
  }
};

// Counts of several layers together. They may have different numbers of experts, of which the sums
// say nothing by themselves.
struct ExpertTotals {
  uint64_t steps = 0, pairs = 0, active = 0, followed_pairs = 0, again = 0;
  explicit ExpertTotals(const std::vector<ExpertCounts>& layers) {
    for (const ExpertCounts& layer : layers) {
      steps += layer.steps;
      pairs += layer.pairs();
      active += layer.active;
      followed_pairs += layer.followed * layer.used;
      again += layer.again;
    }
  }
  double active_per_step() const { return RatioOf(active, steps); }  // of a layer
  double reuse() const { return RatioOf(again, followed_pairs); }
};

}  // namespace larder
