// A chain of stages gives the same bits as one stage, for all kinds of stages and all numbers of
// micro-batches in flight.
#include <gtest/gtest.h>

#include <thread>

#include "pipeline/engine/chain_testing.h"

namespace larder::pipeline::inline engine {
namespace {

class ChainTest : public testing::Test {
 protected:
  static constexpr size_t kVocab = 301;
  ChainTest() : model_(FourLayers()), tokens_(TestTokens(290, kVocab)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 100);
  }
  std::vector<float> Logits(const Engine& engine, size_t i) {
    const auto logits = engine.logits(i);
    return {logits.begin(), logits.end()};
  }
  std::vector<float> Baseline(size_t position) {
    const auto at = baseline_.begin() + static_cast<std::ptrdiff_t>(position * kVocab);
    return {at, at + kVocab};
  }

  TestModel model_;
  std::vector<int32_t> tokens_;
  std::vector<float> baseline_;
};

TEST_F(ChainTest, StagesOfAnySizeAndForm) {
  const std::vector<std::vector<TestStage>> chains = {
      {{4}},
      {{2}, {2}},
      {{1}, {3, 2}},
      {{1}, {1}, {1}, {1}},
      {{2, 1, {{1, 1}}}, {2, 1, {{1, 1}}}},
      {{3, 2, {{2, 1}}}, {1}},
  };
  for (size_t i = 0; i < chains.size(); ++i) {
    const TestChain test = MakeTestChain(*model_.file(), chains[i], 1, chains[i].size() + 1);
    auto engine = MakeChainEngine(model_.file(), test);
    EXPECT_EQ(engine->max_in_flight(), chains[i].size() + 1);
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 64), baseline_), "") << "chain " << i;
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 7), baseline_), "") << "chain " << i;
  }
}

// Each slot is a separate micro-batch, and all are in flight at once. Slots start one after the
// other, so that different positions are in flight together.
TEST_F(ChainTest, MicroBatchesInFlight) {
  const std::vector<TestStage> stages = {{2, 1, {{1, 2}, {1, 1}}}, {2, 1, {{2, 2}, {1, 1}}}};
  const TestChain test = MakeTestChain(*model_.file(), stages, 3, 3);
  auto engine = MakeChainEngine(model_.file(), test);
  struct Sequence {
    SlotId slot;
    size_t next = 0;
  };
  std::deque<Sequence> in_flight;
  auto submit = [&](Sequence sequence) {
    const TokenRow row{tokens_[sequence.next], sequence.slot, static_cast<uint32_t>(sequence.next),
                       true};
    engine->Submit({&row, 1});
    in_flight.push_back(sequence);
  };
  size_t checked = 0;
  for (SlotId slot(0); slot.index() < 3; ++slot) submit({slot});
  while (!in_flight.empty()) {
    engine->Collect();
    Sequence sequence = in_flight.front();
    in_flight.pop_front();
    ASSERT_EQ(FirstDifference(Logits(*engine, 0), Baseline(sequence.next)), "")
        << "slot " << sequence.slot.value << ", position " << sequence.next;
    ++checked;
    if (++sequence.next < 40 + 10 * sequence.slot.index()) submit(sequence);
  }
  EXPECT_EQ(checked, 40u + 50u + 60u);
}

TEST_F(ChainTest, BatchesAndRowsWithoutLogits) {
  const TestChain test = MakeTestChain(*model_.file(), {{3}, {1}}, 6, 3);
  auto engine = MakeChainEngine(model_.file(), test);
  const std::vector<int32_t> order = {4, 0, 2, 5, 1, 3};
  for (size_t i = 0; i < 30; ++i) {
    std::vector<TokenRow> rows;
    for (const int32_t slot : order)
      rows.push_back({tokens_[i], SlotId(slot), static_cast<uint32_t>(i), slot % 2 == 0});
    engine->Run(rows);
    for (size_t k = 0; k < 3; ++k)
      ASSERT_EQ(FirstDifference(Logits(*engine, k), Baseline(i)), "") << i;
  }
}

// Frames bring the stages' counters a few at a time.
TEST(ChainExpertsTest, WhatRoutersChooseIsCountedAsInOneStage) {
  model::SynthOptions options = FourLayers();
  options.shape.architecture = "llama";
  options.shape.experts = 9;
  options.shape.experts_used = 3;
  options.shape.expert_ffn = 96;
  const TestModel model(options);
  const std::vector<int32_t> tokens = TestTokens(60, options.shape.vocab);
  auto one = MakeEngine(model.file(), {});
  RunChunks(*one, tokens, 13);
  const TestChain test = MakeTestChain(*model.file(), {{1}, {3}}, 1, 3);
  auto chain = MakeChainEngine(model.file(), test);
  RunChunks(*chain, tokens, 13);
  chain->FetchExpertCounts();
  const std::vector<ExpertCounts> expected = one->expert_counts(), counts = chain->expert_counts();
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_GT(expected[3].again, 0u);
  EXPECT_EQ(counts, expected);
}

TEST_F(ChainTest, StagesMustAgreeOnSlots) {
  TestChain test =
      MakeTestChain(*model_.file(), {{2, 1, {{1, 2}, {1, 1}}}, {2, 1, {{1, 1}, {1, 2}}}}, 3, 2);
  try {
    MakeChainEngine(model_.file(), test);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("divides the slots among its attention sockets differently"),
        std::string::npos)
        << error.what();
  }
}

TEST_F(ChainTest, AnEngineOfOneStageCountsWhereItIsTold) {
  SocketStatus status;
  ChainOptions options;
  options.wait = kTestWait;
  options.status = &status;
  Engine engine(model_.file(), MakeTestPlan(*model_.file(), {}), options);
  EXPECT_EQ(&engine.status(), &status);
  RunChunks(engine, tokens_, 10);
  EXPECT_EQ(status.frames_started.load(), 30u);
  EXPECT_EQ(status.frames_finished.load(), 30u);
  EXPECT_EQ(status.rows.load(), tokens_.size() + 1);
  EXPECT_GT(status.step_ns.load(), 0u);
  EXPECT_EQ(status.weight_bytes.load(), engine.plan().weight_bytes);
  EXPECT_EQ(status.state.load(), static_cast<uint32_t>(SocketState::kServing));
}

TEST_F(ChainTest, StatusCounts) {
  const TestChain test = MakeTestChain(*model_.file(), {{2}, {2}}, 1, 2);
  auto engine = MakeChainEngine(model_.file(), test);
  RunChunks(*engine, tokens_, 10);
  EXPECT_EQ(engine->status().frames_finished.load(), 30u);
  EXPECT_EQ(engine->status().rows.load(), tokens_.size() + 1);
  for (size_t stage = 0; stage < 2; ++stage) {
    const SocketStatus& status = engine->client()->stage_threads()->status(stage);
    // A stage counts a frame only after it has sent it on.
    while (status.frames_finished.load() < 30) std::this_thread::yield();
    EXPECT_EQ(status.frames_started.load(), 30u);  // 29 and the warm-up
    EXPECT_EQ(status.rows.load(), tokens_.size() + 1);
    EXPECT_GT(status.step_ns.load(), 0u);
  }
}

}  // namespace
}  // namespace larder::pipeline::engine
