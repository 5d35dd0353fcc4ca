// Limits and times of Plans, beside what the Plans predict.
#include "pipeline/simulation/simulated_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "pipeline/plan/plan_testing.h"

namespace larder::pipeline::inline simulation {
namespace {

// Of rows of as many sequences.
StepLoad Load(size_t rows, const std::vector<uint64_t>& positions) {
  return {.rows = rows,
          .wanted = rows,
          .positions = positions,
          .held = std::accumulate(positions.begin(), positions.end(), uint64_t{0})};
}

double Us(uint64_t ns) { return static_cast<double>(ns) * 1e-3; }

TEST(SimulatedPlan, HasThePlansSlotsAndChunks) {
  const Plan plan = PlanOf(kThree, TenLayers(), "two-packages");
  const SimulatedPlan of = SimulatedOf(plan);
  EXPECT_EQ(of.limits.capacity, plan.capacity);
  EXPECT_EQ(of.limits.attention_slot_ends, (std::vector{SlotId(1), SlotId(5)}));
  EXPECT_EQ(of.chunks.slot_ends, of.limits.attention_slot_ends);
  size_t chunks = 0;
  for (const PlanAttentionSocket& socket : plan.stages[0].plan.attention)
    chunks += socket.kv_chunks;
  EXPECT_EQ(of.chunks.chunk_ends.back(), chunks);
  EXPECT_GE(of.limits.max_logits, plan.capacity.slots);
}

TEST(PlanTimes, AtFullContextAreThoseOfThePrediction) {
  const Plan plan = PlanOf(kThree, TenLayers(), "two-packages");
  const Prediction& prediction = plan.prediction;
  PlanTimes times(plan);
  ASSERT_EQ(times.stages(), 3u);
  for (const size_t rows : {1u, 2u, 8u}) {
    // Both attention sockets have as many cores, and here as many rows.
    const uint64_t half = plan.capacity.context * rows / 2;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(Us(times.StageNs(i, Load(rows, {half, half}))),
                  prediction.Times(prediction.stages[i], rows).stage_us, 0.01)
          << i << ", " << rows;
    }
    EXPECT_NEAR(Us(times.ServingNs(Load(rows, {half, half}))),
                prediction.speeds.step_us + prediction.Times(prediction.stages[3], rows).stage_us,
                0.001);
    const ServiceTimes::Link link = times.LinkOf(rows);
    EXPECT_NEAR(Us(link.busy_ns + link.latency_ns), prediction.LinkUs(rows), 0.002);
  }
}

// All of attention that grows with the context is scaled with the positions; a row's own is not.
TEST(PlanTimes, WithoutPositionsARowIsAppendedAlone) {
  const Plan plan = PlanOf(kThree, TenLayers(), "two-packages");
  const Prediction& prediction = plan.prediction;
  PlanTimes times(plan);
  for (size_t i = 0; i < 3; ++i) {
    PredictedStage stage = prediction.stages[i];
    const PredictedTimes whole = prediction.Times(stage, 4);
    stage.kv_bytes = 0;
    stage.head_positions = stage.head_elements = 0;
    const PredictedTimes none = prediction.Times(stage, 4);
    EXPECT_LT(none.attention_us, 0.5 * whole.attention_us);
    EXPECT_NEAR(Us(times.StageNs(i, Load(4, {0, 0}))), none.stage_us, 0.001) << i;
  }
}

TEST(PlanTimes, AttentionTakesAsLongAsTheBusiestSocket) {
  const Plan plan = PlanOf(kThree, TenLayers(), "two-packages");
  PlanTimes times(plan);
  const uint64_t none = times.StageNs(0, Load(2, {0, 0})),
                 even = times.StageNs(0, Load(2, {200, 200})),
                 one = times.StageNs(0, Load(2, {400, 0})),
                 other = times.StageNs(0, Load(2, {0, 400}));
  EXPECT_GT(even, none);
  EXPECT_EQ(one, other);
  EXPECT_NEAR(Us(one - none), 2 * Us(even - none), 0.02);
  // A colocated stage has all sequences on all its cores.
  EXPECT_EQ(times.StageNs(1, Load(2, {200, 200})), times.StageNs(1, Load(2, {0, 400})));
}

// Rows of a prompt attend to the same KV, which stays in L3 where that of as many sequences would
// not.
TEST(PlanTimes, APromptHasTheKvOfOneSequence) {
  Plan plan = MakePlan(TenLayers(), TestMachine("two-packages"),
                       {.capacity = {.slots = 64, .context = 4096}});
  // So that reading decides.
  plan.prediction.speeds.attention_element_ns = plan.prediction.speeds.attention_position_ns = 0;
  PlanTimes times(plan);
  StepLoad load = {.rows = 64, .wanted = 1, .positions = {}, .held = 256};
  const std::vector<uint64_t> positions = {64 * 256};
  load.positions = positions;
  const uint64_t prompt = times.StageNs(0, load);
  load.held = 64 * 256;
  EXPECT_GT(times.StageNs(0, load), prompt);
}

TEST(PlanTimes, AStageThatServesItselfHasNoLinks) {
  const Plan plan = MakePlan(TenLayers(), TestMachine("two-cores"), {});
  PlanTimes times(plan);
  EXPECT_EQ(times.stages(), 1u);
  EXPECT_EQ(times.LinkOf(1).busy_ns + times.LinkOf(1).latency_ns, 0u);
  EXPECT_GT(times.ServingNs(Load(1, {1})), 0u);
  EXPECT_DOUBLE_EQ(Us(times.ServingNs({.rows = 1, .wanted = 0, .positions = {}})),
                   plan.prediction.speeds.step_us);
}

}  // namespace
}  // namespace larder::pipeline::simulation
