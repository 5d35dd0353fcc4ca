// Separated weights and attention give the same bits as colocated ones, for all combinations of
// sockets.
#include <gtest/gtest.h>

#include <map>

#include "pipeline/engine/attention_process_testing.h"
#include "pipeline/engine/engine_testing.h"
#include "pipeline/stage/cpu_stage.h"

namespace larder::pipeline::inline engine {
namespace {

class EngineSeparatedTest : public testing::Test {
 protected:
  EngineSeparatedTest() : model_(AwkwardModel()), tokens_(TestTokens(290, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 100);
  }
  TestModel model_;
  std::vector<int32_t> tokens_;  // more than one chunk of 256 positions
  std::vector<float> baseline_;
};

TEST_F(EngineSeparatedTest, OneAttentionSocket) {
  for (const size_t weight_threads : {1, 2, 3}) {
    for (const size_t attention_threads : {1, 2, 3, 5}) {
      auto engine = MakeEngine(model_.file(),
                               {.threads = weight_threads, .attention = {{attention_threads, 1}}});
      EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "")
          << weight_threads << " weight threads, " << attention_threads << " attention threads";
      EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 7), baseline_), "");
    }
  }
}

TEST_F(EngineSeparatedTest, SequencesLiveOnTheirSockets) {
  // Slots 0-1 on one socket, 2 on the next, 3-5 on the third; the rows of a batch are not sorted.
  auto engine = MakeEngine(model_.file(), {.threads = 2, .attention = {{1, 2}, {2, 1}, {1, 3}}});
  const size_t vocab = 301;
  const std::vector<int32_t> order = {4, 0, 2, 5, 1, 3};
  for (size_t i = 0; i < 40; ++i) {
    std::vector<TokenRow> rows;
    rows.reserve(order.size());
    for (const int32_t slot : order)
      rows.push_back({tokens_[i], SlotId(slot), static_cast<uint32_t>(i), slot % 2 == 0});
    engine->Run(rows);
    const auto at = baseline_.begin() + static_cast<std::ptrdiff_t>(i * vocab);
    for (size_t k = 0; k < 3; ++k) {  // slots 4, 0, 2 wanted logits
      const auto logits = engine->logits(k);
      ASSERT_EQ(FirstDifference({logits.begin(), logits.end()},
                                {at, at + static_cast<std::ptrdiff_t>(vocab)}),
                "")
          << i << " " << k;
    }
  }
}

// Sequences on different sockets do not affect each other.
TEST_F(EngineSeparatedTest, DifferentSequencesOnDifferentSockets) {
  auto engine = MakeEngine(model_.file(), {.threads = 1, .attention = {{1, 1}, {1, 1}}});
  RunChunks(*engine, TestTokens(64, 301, 9), 50, SlotId(1));
  EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 50, SlotId(0)), baseline_), "");
  const auto other = RunChunks(*engine, TestTokens(64, 301, 9), 64, SlotId(1));
  auto colocated = MakeEngine(model_.file(), {});
  EXPECT_EQ(FirstDifference(other, RunChunks(*colocated, TestTokens(64, 301, 9), 32)), "");
}

TEST_F(EngineSeparatedTest, WeightThreadsMeetThreeTimesALayer) {
  auto engine = MakeEngine(model_.file(), {.threads = 2, .attention = {{1, 1}}});
  for (size_t t = 0; t < 2; ++t) {
    for (size_t halves = 1; halves <= kHalves; ++halves) {
      std::map<std::pair<int, int>, int> barriers, waits;  // [half, layer]; 0: not cut
      for (const auto& step :
           CpuStage::Of(engine->stage()).steps(weight_node::ProgramForm::kFewRows, t, halves)) {
        if (step.kind == static_cast<uint16_t>(model::StepKind::kEmbed)) continue;
        if (step.kind == static_cast<uint16_t>(model::StepKind::kLmHead)) continue;
        // Behind the last attention a half's part is another one, of logit rows alone.
        const std::pair<int, int> at(step.part % (1 + kHalves), step.layer);
        barriers[at] += step.barrier;
        waits[at] += step.wait_count > 0;
      }
      size_t seen = 0;
      for (const auto& [half_and_layer, n] : barriers) {
        if (halves == 2 && half_and_layer.first == 0) continue;  // the lm_head's norm
        ++seen;
        EXPECT_EQ(n, 3);                         // O, gate/up, down
        EXPECT_EQ(waits.at(half_and_layer), 1);  // the returning heads, the fourth synchronization
                                                 // point
      }
      EXPECT_EQ(seen, 2 * halves);
    }
  }
}

// Frames in two halves: different splits, several attention sockets, a slot's rows in both halves.
TEST_F(EngineSeparatedTest, HalvesGiveTheSameBits) {
  for (const TestEngineOptions& options :
       {TestEngineOptions{.threads = 1, .attention = {{1, 1}}},
        TestEngineOptions{.threads = 3, .attention = {{2, 1}}},
        TestEngineOptions{.threads = 2, .attention = {{5, 1}, {1, 1}}}}) {
    auto engine = MakeEngine(model_.file(), options);
    CutMicroBatches batches(engine->stage(), tokens_, baseline_);
    for (const auto& [rows, first_half] :
         {std::pair(100u, 1u), {100u, 63u}, {30u, 29u}, {20u, 7u}, {40u, 20u}})
      batches.Run(rows, first_half);
    ASSERT_EQ(batches.done(), tokens_.size());
  }
}

TEST_F(EngineSeparatedTest, OneProcessForEachSocket) {
  const TestEngineOptions options{
      .threads = 2, .attention = {{1, 1}, {2, 1}}, .processes = fmt::format("test-{}", getpid())};
  AttentionProcesses processes(*model_.file(), options.processes,
                               MakeTestPlan(*model_.file(), options),
                               {kTestWait, {kTestWait, kTestWait}});
  {
    auto engine = MakeEngine(model_.file(), options);
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100, SlotId(0)), baseline_), "");
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 9, SlotId(1)), baseline_), "");
  }
  EXPECT_EQ(processes.Statuses(), (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace larder::pipeline::engine
