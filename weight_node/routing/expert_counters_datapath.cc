#include <algorithm>

#include "weight_node/routing/expert_counters.h"

namespace larder::weight_node::inline routing {
namespace {

// One writer: no locked instruction needed.
void Add(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// Of two ascending lists of the same length, how many are in both.
uint64_t InBoth(const uint16_t* a, const uint16_t* b, size_t n) {
  uint64_t both = 0;
  for (size_t i = 0, k = 0; i < n && k < n;) {
    both += a[i] == b[k];
    const bool next_a = a[i] <= b[k], next_b = b[k] <= a[i];
    i += next_a;
    k += next_b;
  }
  return both;
}

}  // namespace

void ExpertCounters::Layer::Count(const model::BatchRows& rows, const ChosenRows& chosen,
                                  const RoutingTable& table) {
  if (rows.rows == 0) return;
  uint64_t active = 0;
  for (size_t e = 0; e < rows_.size(); ++e) {
    const uint32_t count = table.count(e);
    if (count == 0) continue;
    ++active;
    Add(rows_[e], count);
  }
  uint64_t followed = 0, again = 0;
  for (uint32_t m = 0; m < rows.rows; ++m) {
    const uint16_t* const experts = chosen.experts + (rows.first_row + m) * used_;
    Last& last = last_[rows.slot[m].index()];
    if (last.next != 0 && last.next == rows.position[m]) {
      ++followed;
      again += InBoth(experts, last.experts, used_);
    }
    std::copy_n(experts, used_, last.experts);
    last.next = rows.position[m] + 1;
  }
  Add(steps_, 1);
  Add(active_, active);
  Add(followed_, followed);
  Add(again_, again);
}

}  // namespace larder::weight_node::routing
