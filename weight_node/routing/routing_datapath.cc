#include <algorithm>
#include <limits>

#include "weight_node/routing/routing.h"

namespace larder::weight_node::inline routing {
namespace {

struct Best {
  float value;
  uint16_t expert;
};

// The experts of the largest values, of equal ones the lower ones; then ascending by number.
void SelectLargest(const float* values, size_t experts, size_t used, uint16_t* chosen) {
  Best best[kMostUsed];
  size_t n = 0;
  for (size_t e = 0; e < experts; ++e) {
    const float value =
        values[e] == values[e] ? values[e] : -std::numeric_limits<float>::infinity();
    if (n == used && !(value > best[n - 1].value)) continue;
    size_t at = n < used ? n++ : used - 1;
    for (; at > 0 && value > best[at - 1].value; --at) best[at] = best[at - 1];
    best[at] = {value, static_cast<uint16_t>(e)};
  }
  for (size_t i = 0; i < used; ++i) {
    size_t at = i;
    for (; at > 0 && chosen[at - 1] > best[i].expert; --at) chosen[at] = chosen[at - 1];
    chosen[at] = best[i].expert;
  }
}

// Leaves -infinity of experts whose group is not chosen.
void KeepBestGroups(const RouterRule& rule, float* values) {
  const size_t of_group = rule.experts / rule.groups;
  float sums[kMostGroups] = {};
  uint16_t chosen[kMostGroups];
  for (size_t g = 0; g < rule.groups; ++g) {
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (size_t e = g * of_group; e < (g + 1) * of_group; ++e) {
      const float value = values[e];
      if (value > first) {
        second = first;
        first = value;
      } else if (value > second) {
        second = value;
      }
    }
    sums[g] = first + second;
  }
  SelectLargest(sums, rule.groups, rule.groups_used, chosen);
  size_t next = 0;
  for (size_t g = 0; g < rule.groups; ++g) {
    if (next < rule.groups_used && chosen[next] == g) {
      ++next;
      continue;
    }
    std::fill_n(values + g * of_group, of_group, -std::numeric_limits<float>::infinity());
  }
}

float ScaleOf(const RouterRule& rule, size_t expert) {
  return rule.scales == nullptr ? rule.scale : rule.scale * rule.scales[expert];
}

}  // namespace

void ChooseExperts(const RouterRule& rule, const kernels::Elementwise& elementwise, float* logits,
                   float* by, const ChosenRows& rows, size_t m) {
  uint16_t* const chosen = rows.experts + m * rule.used;
  float* const weights = rows.weights + m * rule.used;
  float max, sum;
  if (rule.shared_gate) {
    float gate = logits[rule.experts];
    elementwise.sigmoid(&gate, 1);
    rows.shared[m] = gate;
  } else {
    rows.shared[m] = 1.0f;
  }
  const bool by_logit = rule.bias == nullptr && rule.groups == 1;
  if (by_logit) SelectLargest(logits, rule.experts, rule.used, chosen);
  if (rule.gating == model::ExpertGating::kSoftmax && rule.normalise && by_logit) {
    for (size_t i = 0; i < rule.used; ++i) by[i] = logits[chosen[i]];
    const size_t padded = RoundUp(rule.used, 16);
    elementwise.softmax_chunk(by, padded, 1, 0, rule.used, padded, &max, &sum);
    for (size_t i = 0; i < rule.used; ++i) weights[i] = by[i] / sum * ScaleOf(rule, chosen[i]);
    return;
  }
  float least = 0.0f;  // what a sum of weights begins with
  if (rule.gating == model::ExpertGating::kSoftmax) {
    const size_t padded = RoundUp(rule.experts, 16);
    elementwise.softmax_chunk(logits, padded, 1, 0, rule.experts, padded, &max, &sum);
    for (size_t e = 0; e < rule.experts; ++e) logits[e] = logits[e] / sum;
  } else {
    elementwise.sigmoid(logits, rule.experts);
    least = 1e-20f;
  }
  if (!by_logit) {
    for (size_t e = 0; e < rule.experts; ++e)
      by[e] = rule.bias == nullptr ? logits[e] : logits[e] + rule.bias[e];
    if (rule.groups > 1) KeepBestGroups(rule, by);
    SelectLargest(by, rule.experts, rule.used, chosen);
  }
  float all = least;
  for (size_t i = 0; i < rule.used; ++i) {
    weights[i] = logits[chosen[i]];
    all = all + weights[i];
  }
  for (size_t i = 0; i < rule.used; ++i) {
    if (rule.normalise) weights[i] = weights[i] / all;
    weights[i] = weights[i] * ScaleOf(rule, chosen[i]);
  }
}

Range<uint64_t> PartOfWork(const RoutingTable& table, size_t experts, size_t units, size_t thread,
                           size_t threads) {
  uint64_t all = 0;
  for (size_t e = 0; e < experts; ++e) all += WorkOf(table.count(e));
  all *= units;
  return {all * thread / threads, all * (thread + 1) / threads};
}

void SortByExpert(const RouterRule& rule, const ChosenRows& chosen, size_t begin, size_t rows,
                  const RoutingTable& table) {
  std::fill_n(table.first, rule.experts + 1, 0u);
  const uint16_t* const experts = chosen.experts + begin * rule.used;
  const float* const weights = chosen.weights + begin * rule.used;
  for (size_t i = 0; i < rows * rule.used; ++i) ++table.first[experts[i] + 1];
  for (size_t e = 0; e < rule.experts; ++e) table.first[e + 1] += table.first[e];
  // first[e] is where expert e's next row goes, and in the end where expert e + 1 begins.
  for (size_t m = 0; m < rows; ++m) {
    for (size_t i = m * rule.used; i < (m + 1) * rule.used; ++i) {
      const uint32_t at = table.first[experts[i]]++;
      table.row[at] = static_cast<uint32_t>(begin + m);
      table.weight[at] = weights[i];
    }
  }
  for (size_t e = rule.experts; e > 0; --e) table.first[e] = table.first[e - 1];
  table.first[0] = 0;
}

}  // namespace larder::weight_node::routing
