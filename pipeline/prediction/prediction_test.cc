#include "pipeline/prediction/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace larder::pipeline::inline prediction {
namespace {

constexpr uint64_t kMb = 1000 * 1000;

// A stage of which every part takes time.
PredictedStage Whole() {
  return {.name = "a",
          .layers = 4,
          .cores = 6,
          .weight_bytes = 30 * kMb,
          .weight_parameters = 28 * kMb,
          .balance = 0.9,
          .weights_in_l3 = true,
          .kv_bytes = kMb / 2,
          .kv_cores = 6,
          .head_positions = 16 * 1000,
          .head_elements = 16 * 1000 * 64,
          .attention_heads = 4,
          .attention_chunks = 4,
          .appended_elements = 1536,
          .packages = {.weights = 2, .kv = 2},
          .input_bytes = 10'000,
          .attended_bytes = 6000,
          .normed_elements = 3000,
          .made_elements = 4000,
          .few_rows = 4,
          .kv_room_bytes = 20 * kMb};
}

Prediction Of(const PredictedStage& stage) {
  Prediction p;
  p.capacity.context = 1000;
  p.capacity.max_in_flight = 2;
  p.row_bytes = 4096;
  p.links = 3;
  p.stages = {stage, stage, {.name = "s", .cores = 6, .weight_bytes = kMb, .weights_in_l3 = true}};
  for (const size_t batch : {1, 2, 8, 32}) p.points.push_back(p.BandedPoint(batch));
  return p;
}

// More rows cost a product more, however a core's speed depends on them; experts see their share.
TEST(Prediction, ProductsByTheirRows) {
  Prediction p;
  p.speeds.core_gops = 400;
  EXPECT_EQ(p.ProductGops(3), 400) << "not measured: rows make no difference";
  p.speeds.rows_gops = {100, 200, 300, 350, 380, 390, 400};
  EXPECT_EQ(p.ProductGops(1), 100);
  EXPECT_EQ(p.ProductGops(4), 300);
  EXPECT_EQ(p.ProductGops(1000), 400);
  EXPECT_GT(p.ProductGops(3), 200);
  EXPECT_LT(p.ProductGops(3), 300);
  p.capacity.max_in_flight = 1;
  PredictedStage stage{.layers = 1, .cores = 2, .weight_parameters = 1'000'000};
  stage.normed_elements = 1000;
  stage.made_elements = 500;
  stage.few_rows = 4;
  EXPECT_NEAR(p.Times(stage, 1).weights_us, 2e6 / (2 * 100) * 1e-3, 1e-9);
  EXPECT_NEAR(p.Times(stage, 2).weights_us, 4e6 / (2 * 200) * 1e-3, 1e-9);
  EXPECT_EQ(Prediction::ElementsOf(stage, 4), 4 * (1000 + 250));
  EXPECT_EQ(Prediction::ElementsOf(stage, 8), 8 * (500 + 250)) << "shared out";
  stage.experts = {.count = 8, .used = 2};
  EXPECT_NEAR(p.Times(stage, 1).weights_us, 2e6 / (2 * 100) * 1e-3, 1e-9) << "one row each";
  double before = 0;
  for (size_t batch = 1; batch <= 64; ++batch) {
    const double now = p.Times(stage, batch).stage_us;
    EXPECT_GT(now, before) << batch;
    before = now;
  }
}

// Products wait for their fullest thread, attention for the thread with the most parts.
TEST(Prediction, TheFullestThreadIsWaitedFor) {
  Prediction p;
  p.capacity.max_in_flight = 1;
  PredictedStage stage = Whole();
  const double uneven = p.Times(stage, 1).weights_us;
  stage.balance = 1;
  EXPECT_NEAR(p.Times(stage, 1).weights_us, 0.9 * uneven, 1e-9);
  stage.appended_elements = 0;
  const auto attention = [&](size_t cores, size_t batch = 1) {
    stage.kv_cores = cores;
    return p.AttentionUs(stage, batch, true);
  };
  EXPECT_NEAR(attention(1) / attention(16), 16, 1e-9);
  EXPECT_NEAR(attention(16), attention(17), 1e-9) << "16 parts";
  EXPECT_NEAR(attention(9), attention(15), 1e-9) << "two parts for some";
  EXPECT_NEAR(attention(32, 2), attention(16), 1e-9);
}

// More of anything never predicts slower, of all that a step has.
TEST(Prediction, MoreIsNeverSlower) {
  const Prediction p = Of(Whole());
  const auto times = [](const Prediction& of) {
    std::vector<double> ms;
    for (const size_t batch : {1, 3, 4, 5, 16, 64}) {
      ms.push_back(of.Point(batch).tpot_ms);
      ms.push_back(of.Point(batch).alone_ms);
    }
    return ms;
  };
  const auto never_slower = [&](const Prediction& better, const std::string& what) {
    const std::vector<double> now = times(p), then = times(better);
    bool faster = false;
    for (size_t i = 0; i < now.size(); ++i) {
      EXPECT_LE(then[i], now[i] * (1 + 1e-12)) << what << ", " << i;
      faster = faster || then[i] < now[i] * (1 - 1e-9);
    }
    return faster;
  };
  for (const SpeedInput& input : SpeedInputs()) {
    // Weights and KV of a stage are in L3, so memory is as fast as it likes.
    Prediction better = p;
    if (std::string(input.key).starts_with("dram")) {
      for (PredictedStage& stage : better.stages) stage.weights_in_l3 = false;
      const double before = better.Point(1).tpot_ms;
      better.speeds.dram_socket_gbps *= 2;
      better.speeds.dram_core_gbps *= 2;
      EXPECT_LT(better.Point(1).tpot_ms, before);
      continue;
    }
    better.speeds.Improve(input, 1.3);
    EXPECT_TRUE(never_slower(better, input.key)) << input.key;
  }
  for (const size_t cores : {7, 8, 16, 96}) {
    Prediction better = p;
    for (PredictedStage& stage : better.stages) stage.cores = stage.kv_cores = cores;
    never_slower(better, "cores");
  }
  Prediction better = p;
  for (PredictedStage& stage : better.stages) stage.kv_room_bytes *= 4;
  never_slower(better, "L3");
  // Memory is slower than L3.
  const PredictedStage& stage = p.stages[0];
  for (const size_t batch : {1, 64})
    EXPECT_LE(p.AttentionUs(stage, batch, true), p.AttentionUs(stage, batch, false));
}

// What is assumed makes a band, what is measured or given does not.
TEST(Prediction, AssumedSpeedsMakeABand) {
  Prediction p = Of(Whole());
  for (const PredictedPoint& point : p.points) {
    EXPECT_LT(point.best_ms, point.tpot_ms);
    EXPECT_GT(point.worst_ms, point.tpot_ms);
  }
  EXPECT_EQ(p.speeds.Origin(), "assumed");
  double band = p.points[0].worst_ms - p.points[0].best_ms;
  for (const SpeedInput& input : SpeedInputs()) {
    const double value = p.speeds.*input.value;
    p.speeds.Set(input.value, value, SpeedSource::kMeasured);
    const PredictedPoint point = p.BandedPoint(1);
    EXPECT_LE(point.worst_ms - point.best_ms, band + 1e-12) << input.key;
    band = point.worst_ms - point.best_ms;
  }
  EXPECT_EQ(band, 0);
  EXPECT_EQ(p.speeds.Origin(), "measured here");
  p.speeds.Set(&Speeds::link_gbps, 1, SpeedSource::kGiven);
  EXPECT_EQ(p.speeds.Origin(), "measured here and given");
  EXPECT_NE(p.speeds.Text().find("  given      link-gbps 1\n"), std::string::npos)
      << p.speeds.Text();
}

// One more socket has a share of the layers, which may fit its L3 then.
TEST(Prediction, OneMoreSocketTakesItsShareOfTheLayers) {
  Prediction p = Of(Whole());
  for (PredictedStage& stage : p.stages) {
    stage.weights_in_l3 = false;
    stage.l3_budget_bytes = 100 * kMb;  // three layers
  }
  const Prediction more = p.WithOneMoreSocket();
  ASSERT_EQ(more.stages.size(), 4u);
  size_t layers = 0;
  for (const PredictedStage& stage : more.stages) {
    layers += stage.layers;
    EXPECT_LE(stage.layers, 3u);
    EXPECT_EQ(stage.weights_in_l3, stage.layers > 0) << stage.name;
  }
  EXPECT_EQ(layers, 8u);
  EXPECT_EQ(more.links, 4u);
  EXPECT_GT(more.Point(32).tokens_per_s, p.Point(32).tokens_per_s);
  EXPECT_NE(p.Why().find("one more   such socket"), std::string::npos) << p.Why();
  for (PredictedStage& stage : p.stages) stage.layers = std::min<size_t>(stage.layers, 1);
  EXPECT_EQ(p.WithOneMoreSocket().stages.size(), 3u) << "a layer is not divided";
}

// A 2-layer model whose numbers can be computed by head.
TEST(Prediction, IsTheFormulaThatItPrints) {
  Prediction p;
  p.speeds = {.l3_core_gbps = 10,
              .dram_socket_gbps = 50,
              .core_gops = 1000,
              .layer_sync_us = 3,
              .step_us = 4,
              .link_latency_us = 5,
              .link_gbps = 1};
  p.capacity.context = 100;
  p.capacity.max_in_flight = 3;
  p.row_bytes = 1000;
  p.links = 3;
  const PredictedStage stage{.name = "a",
                             .layers = 2,
                             .cores = 10,
                             .weight_bytes = 10 * kMb,  // 100 us at 100 GB/s
                             .weight_parameters = 9 * kMb,
                             .weights_in_l3 = true,
                             .kv_bytes = kMb,  // 10 us
                             .kv_cores = 10,
                             .kv_room_bytes = 12 * kMb};
  PredictedStage far = stage;
  far.name = "b";
  far.weights_in_l3 = false;  // 200 us at 50 GB/s
  p.stages = {
      stage, far, {.name = "s", .cores = 10, .weight_bytes = 2 * kMb, .weights_in_l3 = true}};
  const PredictedTimes one = p.Times(stage, 1);
  EXPECT_NEAR(one.weights_us, 100, 1e-9);
  EXPECT_NEAR(one.attention_us, 10, 1e-9);
  EXPECT_NEAR(one.stage_us, 2 * (100 + 10 + 3), 1e-9);
  EXPECT_FALSE(one.compute_bound);
  EXPECT_TRUE(one.kv_in_l3) << "3 in flight x 2 layers x 1 MB";
  EXPECT_NEAR(p.Times(far, 1).stage_us, 2 * (200 + 10 + 3), 1e-9);
  EXPECT_NEAR(p.LinkUs(1), 5 + 1, 1e-9);
  const double path_us = 226 + 426 + 20 + 3 * 6 + 4;
  EXPECT_NEAR(p.Point(1).alone_ms, path_us * 1e-3, 1e-9);
  EXPECT_NEAR(p.Point(1).tpot_ms, 3 * 426 * 1e-3, 1e-9)
      << "three in flight wait for the slowest stage";
  EXPECT_NEAR(p.Point(1).tokens_per_s, 3 / (3 * 426e-6), 1e-6);
  // Large batches are bound by arithmetic, 2 x 64 x 9 M at 10000 GOP/s, and their KV no longer
  // fits.
  const PredictedTimes many = p.Times(stage, 64);
  EXPECT_TRUE(many.compute_bound);
  EXPECT_NEAR(many.weights_us, 2 * 64 * 9e6 / 1e13 * 1e6, 1e-9);
  EXPECT_FALSE(many.kv_in_l3);
  EXPECT_NEAR(many.attention_us, 64 * 20, 1e-9);
  const std::string text = p.Text();
  for (const char* part :
       {"context 100, from (assumed)\n",
        "2 layers x (weights 10.00 MB / 100 GB/s L3 + attention of 1.00 MB in L3 + barriers)",
        "2 x (100.0 + 10.0 + 3.0 us) = 226.0 us", "10.00 MB / 50 GB/s memory",
        "head 2.00 MB / 100 GB/s L3 = 20.0 us", "5 us + 1.0 KB / 1 GB/s = 6.0 us, 3 a token",
        "226.0 + 426.0 + 20.0 + 3 x 6.0 + 4 us around a step = 0.694 ms", "3 x slowest) = 1.278 ms",
        "binds      memory: reading weights 94 % of b's time",
        "twice      as good would give: dram-gbps "})
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in\n" << text;
}

}  // namespace
}  // namespace larder::pipeline::prediction
