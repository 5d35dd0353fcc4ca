// Micro-batches through stations, against their times worked out by hand, and what the engine
// refuses.
#include "pipeline/simulation/simulated_engine.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "pipeline/simulation/stations.h"

namespace larder::pipeline::inline simulation {
namespace {

// Each stage takes so long for a row.
struct RowTimes : ServiceTimes {
  explicit RowTimes(std::vector<uint64_t> of_stages) : row_ns(std::move(of_stages)) {}
  size_t stages() const override { return row_ns.size(); }
  uint64_t StageNs(size_t stage, const StepLoad& load) override {
    return row_ns[stage] * load.rows;
  }
  Link LinkOf(size_t rows) override { return {link_row_ns * rows, latency_ns}; }
  uint64_t ServingNs(const StepLoad& load) override { return head_ns * load.wanted; }
  bool serves_beside() const override { return beside; }

  std::vector<uint64_t> row_ns;
  uint64_t link_row_ns = 0, latency_ns = 0, head_ns = 0;
  bool beside = false;
};

StepLoad Rows(size_t rows, size_t wanted) {
  return {.rows = rows, .wanted = wanted, .positions = {}};
}

TEST(Stations, AMicroBatchTakesTheSumOfItsWay) {
  RowTimes times({100, 200});
  times.link_row_ns = 3;
  times.latency_ns = 1000;
  times.head_ns = 50;
  Stations stations(times);
  // 2 links with 4 rows, one with a row, 3 latencies.
  EXPECT_EQ(stations.Pass(Rows(4, 1), 10), 10u + 4 * 300 + (4 + 4 + 1) * 3 + 3 * 1000);
  EXPECT_EQ(stations.Serve(Rows(4, 1), 5000), 5050u);
  EXPECT_EQ(stations.stage_busy_ns(0), 400u);
  EXPECT_EQ(stations.stage_busy_ns(1), 800u);
  EXPECT_EQ(stations.serving_busy_ns(), 50u);
}

TEST(Stations, TheSlowestStageSetsThePace) {
  for (const size_t slow : {0u, 1u, 2u}) {
    RowTimes times({100, 100, 100});
    times.row_ns[slow] = 400;
    Stations stations(times);
    uint64_t last = 0;
    for (size_t i = 0; i < 10; ++i) {
      const uint64_t back = stations.Pass(Rows(1, 1), 0);
      EXPECT_EQ(back, 600 + 400 * i) << "behind the one before it";
      last = back;
    }
    // One that comes late waits for nobody.
    EXPECT_EQ(stations.Pass(Rows(1, 1), last + 1), last + 1 + 600);
  }
}

TEST(Stations, ASlowLinkSetsThePaceAndLatencyDoesNot) {
  RowTimes times({100});
  times.link_row_ns = 300;
  times.latency_ns = 5000;
  Stations stations(times);
  const uint64_t first = stations.Pass(Rows(1, 1), 0);
  EXPECT_EQ(first, 300u + 5000 + 100 + 300 + 5000);
  EXPECT_EQ(stations.Pass(Rows(1, 1), 0), first + 300);
}

TEST(Stations, ServingBesideTheFirstStageTakesItsCores) {
  RowTimes times({100, 100});
  times.head_ns = 70;
  for (const bool beside : {false, true}) {
    times.beside = beside;
    Stations stations(times);
    const uint64_t back = stations.Pass(Rows(1, 1), 0);
    stations.Pass(Rows(1, 1), 0);
    stations.Pass(Rows(1, 1), 0);
    // The first stage is busy until 300.
    EXPECT_EQ(back, 200u);
    EXPECT_EQ(stations.Serve(Rows(1, 1), back), beside ? 370u : 270u);
    EXPECT_EQ(stations.Pass(Rows(1, 1), 0), beside ? 570u : 500u);
  }
}

constexpr size_t kChunk = 16;
const EngineLimits kLimits = {
    .capacity = {.slots = 2, .context = 64, .max_batch_tokens = 8, .max_in_flight = 2},
    .vocab = 1,
    .max_logits = 4};

KvChunksShape Chunks() {
  return {.capacity = kLimits.capacity,
          .chunk_positions = kChunk,
          .slot_ends = {},
          .chunk_ends = {8},
          .max_updates = 16,
          .kept = 2};
}

TokenRow Row(int slot, uint32_t position, bool logits = false) {
  return {.token = 0, .slot = SlotId(slot), .position = position, .logits = logits};
}

TEST(SimulatedEngine, CollectAdvancesTheClockToTheOldest) {
  RowTimes times({1000, 1000});
  times.head_ns = 10;
  VirtualClock clock;
  SimulatedEngine engine(kLimits, Chunks(), times, clock);
  const uint64_t begin = clock.now_ns();
  engine.Submit(std::array{Row(0, 0), Row(0, 1, true)});
  engine.Submit(std::array{Row(1, 0, true)});
  EXPECT_EQ(clock.now_ns(), begin) << "nobody has waited";
  EXPECT_EQ(engine.in_flight(), 2u);
  engine.Collect();
  EXPECT_EQ(clock.now_ns(), begin + 4010);
  engine.Collect();
  EXPECT_EQ(clock.now_ns(), begin + 5010) << "a row behind two in the last stage";
  EXPECT_EQ(engine.most_in_flight(), 2u);
  EXPECT_EQ(engine.kv().length(SlotId(0)), 2u);
  EXPECT_EQ(engine.logits(0).size(), 1u);
}

TEST(SimulatedEngineDeath, RefusesWhatAnEngineWould) {
  RowTimes times({1});
  VirtualClock clock;
  SimulatedEngine engine(kLimits, Chunks(), times, clock);
  EXPECT_DEATH(engine.Submit(std::array{Row(0, 1)}), "position");
  EXPECT_DEATH(engine.Submit(std::array{Row(0, 0), Row(1, 0), Row(0, 1)}), "not adjacent");
  EXPECT_DEATH(engine.Submit(std::array{Row(0, 0), Row(0, 2)}), "position");
  EXPECT_DEATH(engine.Collect(), "empty");
}

}  // namespace
}  // namespace larder::pipeline::simulation
