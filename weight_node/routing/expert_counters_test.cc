// Counters of experts against a recount of random choices.
#include "weight_node/routing/expert_counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "model/synth/synth.h"

namespace larder::weight_node::inline routing {
namespace {

TEST(ExpertCounters, CountWhatRoutersChose) {
  const model::ModelConfig config =
      model::ConfigOfShape(model::ShapeByName("bench-moe-20m"), "test");
  const model::ExpertSpec& spec = config.layer(1).experts;
  constexpr size_t kSlots = 3, kSteps = 60, kFirstRow = 2;
  ExpertCounters counters(config, kSlots);
  std::mt19937 random(3);
  std::vector<uint32_t> next(kSlots, 0);
  std::map<size_t, std::set<uint16_t>> last;  // [slot]
  std::vector<uint64_t> rows_of(spec.count);
  uint64_t active = 0, followed = 0, again = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    std::vector<SlotId> slots;
    std::vector<uint32_t> positions;
    for (size_t slot = 0; slot < kSlots; ++slot) {
      if (random() % 8 == 0) next[slot] = static_cast<uint32_t>(random() % 5);  // another sequence
      for (size_t n = random() % 3; n > 0; --n) {
        slots.push_back(SlotId(static_cast<int32_t>(slot)));
        positions.push_back(next[slot]++);
      }
    }
    const size_t rows = slots.size();
    std::vector<uint16_t> experts(kFirstRow * spec.used);
    std::set<uint16_t> seen;
    for (size_t m = 0; m < rows; ++m) {
      std::set<uint16_t> chosen;
      while (chosen.size() < spec.used)
        chosen.insert(static_cast<uint16_t>(random() % (spec.count / 2)));  // half are never chosen
      experts.insert(experts.end(), chosen.begin(), chosen.end());
      seen.insert(chosen.begin(), chosen.end());
      for (const uint16_t e : chosen) ++rows_of[e];
      static std::map<size_t, uint32_t> behind;
      const size_t slot = slots[m].index();
      if (positions[m] > 0 && behind.contains(slot) && behind[slot] == positions[m]) {
        ++followed;
        for (const uint16_t e : chosen) again += last[slot].contains(e);
      }
      last[slot] = chosen;
      behind[slot] = positions[m] + 1;
    }
    active += seen.size();
    std::vector<float> weights(experts.size(), 1.0f), of_pair(rows * spec.used),
        shared(kFirstRow + rows);
    std::vector<uint32_t> first(spec.count + 1), row(rows * spec.used);
    const ChosenRows chosen{experts.data(), weights.data(), shared.data()};
    const RoutingTable table{first.data(), row.data(), of_pair.data()};
    SortByExpert({.experts = spec.count, .used = spec.used}, chosen, kFirstRow, rows, table);
    counters.of(1).Count({.rows = static_cast<uint32_t>(rows),
                          .first_row = kFirstRow,
                          .slot = slots.data(),
                          .position = positions.data()},
                         chosen, table);
  }
  const std::vector<ExpertCounts> counts = counters.Read();
  ASSERT_EQ(counts.size(), config.layers);
  EXPECT_EQ(counts[0].steps, 0u);
  EXPECT_EQ(counts[1].layer, 1u);
  EXPECT_EQ(counts[1].used, spec.used);
  EXPECT_EQ(counts[1].rows, rows_of);
  EXPECT_EQ(counts[1].active, active);
  EXPECT_GT(followed, 0u);
  EXPECT_EQ(counts[1].followed, followed);
  EXPECT_EQ(counts[1].again, again);
  EXPECT_EQ(counts[1].pairs(), std::accumulate(rows_of.begin(), rows_of.end(), uint64_t{0}));
  EXPECT_GE(counts[1].steps, 1u);
  EXPECT_LE(counts[1].steps, kSteps);
}

TEST(ExpertCounts, SaysHowUnequalChoicesAre) {
  const ExpertCounts before{.used = 2, .steps = 1, .active = 2, .rows = {1, 0, 1, 0}};
  const ExpertCounts now{
      .used = 2, .steps = 5, .active = 14, .followed = 4, .again = 2, .rows = {9, 2, 5, 0}};
  const ExpertCounts since = now.Since(before);
  EXPECT_EQ(since.rows, (std::vector<uint64_t>{8, 2, 4, 0}));
  EXPECT_DOUBLE_EQ(since.active_per_step(), 3);
  EXPECT_DOUBLE_EQ(since.reuse(), 0.25);
  EXPECT_DOUBLE_EQ(since.skew(), 8.0 * 4 / 14);
  EXPECT_DOUBLE_EQ(since.hit_rate(1), 8.0 / 14);
  EXPECT_DOUBLE_EQ(since.hit_rate(2), 12.0 / 14);
  EXPECT_DOUBLE_EQ(since.hit_rate(9), 1);
  EXPECT_DOUBLE_EQ(ExpertCounts().skew(), 0);
  const ExpertTotals totals({since, before});
  EXPECT_EQ(totals.pairs, 16u);
  EXPECT_DOUBLE_EQ(totals.active_per_step(), 14.0 / 5);
  EXPECT_DOUBLE_EQ(totals.reuse(), 0.25);
}

}  // namespace
}  // namespace larder::weight_node::routing
