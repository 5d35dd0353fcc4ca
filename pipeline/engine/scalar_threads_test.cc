// The engine's threads on the scalar kernels, which are compiled, not generated: only then can
// ThreadSanitizer see which data the threads share and whether flags and barriers order it. .ci/run
// runs these tests under it. Eight threads are more than a small machine has cores.
#include <gtest/gtest.h>

#include <vector>

#include "pipeline/engine/attention_server_testing.h"

namespace larder::pipeline::inline engine {
namespace {

class ScalarThreadsTest : public testing::Test {
 protected:
  ScalarThreadsTest() : model_(AwkwardModel()), tokens_(TestTokens(40, 301)) {
    auto engine = MakeEngine(model_.file(), Options({.threads = 1}));
    baseline_ = RunChunks(*engine, tokens_, 20);
  }
  static TestEngineOptions Options(TestEngineOptions options) {
    options.isa = kernels::Isa::kScalar;
    options.context = 64;
    options.max_batch_tokens = 32;
    options.few_rows = 8;
    return options;
  }
  // Runs prefill in chunks, and token by token, in every slot of the engine.
  void ExpectSameBits(const TestEngineOptions& options, size_t slots) {
    auto engine = MakeEngine(model_.file(), Options(options));
    for (SlotId slot(0); slot.index() < slots; ++slot) {
      EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 15, slot), baseline_), "")
          << "slot " << slot.value;
    }
    EXPECT_EQ(
        FirstDifference(RunChunks(*engine, tokens_, 1, SlotId(static_cast<int32_t>(slots) - 1)),
                        baseline_),
        "");
  }

  TestModel model_;
  std::vector<int32_t> tokens_;
  std::vector<float> baseline_;
};

TEST_F(ScalarThreadsTest, Colocated) { ExpectSameBits({.threads = 8}, 1); }

// Threads of several L3 groups meet group by group.
TEST_F(ScalarThreadsTest, L3Groups) {
  const auto machine = topology::Topology::FromSynthetic(
      "package:2 numa:1(memory=8GiB) l3:2(size=32MiB) core:2 pu:1");
  ExpectSameBits({.threads = 8, .machine = &machine}, 1);
  ExpectSameBits({.threads = 5, .attention = {{4, 1}, {3, 1}}, .machine = &machine}, 2);
}

TEST_F(ScalarThreadsTest, OneAttentionSocket) {
  ExpectSameBits({.threads = 5, .attention = {{3, 1}}}, 1);
}

TEST_F(ScalarThreadsTest, SeveralAttentionSockets) {
  ExpectSameBits({.threads = 3, .attention = {{2, 1}, {2, 1}, {1, 1}}}, 3);
}

// Links' threads stand in for the other socket at either end, over TCP; halves have flags of their
// own.
TEST_F(ScalarThreadsTest, AttentionOfOtherServers) {
  const AttentionServers servers(
      *model_.file(),
      MakeTestPlan(*model_.file(), Options({.threads = 3, .attention = {{2, 1}, {1, 1}}})));
  auto engine = servers.Connect(model_.file());
  EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 15, SlotId(0)), baseline_), "");
  EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 1, SlotId(1)), baseline_), "");
  CutMicroBatches batches(engine->stage(), tokens_, baseline_);
  for (const auto& [rows, first_half] : {std::pair(20u, 7u), {20u, 19u}})
    batches.Run(rows, first_half);
}

// Work between micro-batches: each item once, and what it wrote is seen.
TEST_F(ScalarThreadsTest, SpreadsItems) {
  auto engine = MakeEngine(model_.file(), Options({.threads = 4}));
  for (const size_t count : {0, 1, 3, 100}) {
    std::vector<size_t> items(count, 0);
    engine->Spread(
        count, [](void* of, size_t i) { (*static_cast<std::vector<size_t>*>(of))[i] += i + 1; },
        &items);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(items[i], i + 1);
  }
  EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 15), baseline_), "");
}

// Panels that threads share along their inputs, with flags of their own.
TEST(ScalarThreadsCutPanelsTest, OneThreadAndSeveral) {
  model::SynthOptions synth = AwkwardModel();
  synth.shape.dim = 48;
  synth.shape.ffn = 8192;
  const TestModel model(synth);
  const std::vector<int32_t> tokens = TestTokens(20, 301);
  const auto logits = [&](TestEngineOptions options) {
    options.isa = kernels::Isa::kScalar;
    options.context = 64;
    options.max_batch_tokens = 16;
    options.few_rows = 4;
    auto engine = MakeEngine(model.file(), options);
    std::vector<float> all = RunChunks(*engine, tokens, 7);
    for (const float logit : RunChunks(*engine, tokens, 1)) all.push_back(logit);
    return all;
  };
  const StagePlan plan = MakeTestPlan(*model.file(), {.threads = 5});
  EXPECT_FALSE(plan.shards.threads[1].parts[0].empty());
  const std::vector<float> baseline = logits({.threads = 1});
  EXPECT_EQ(FirstDifference(logits({.threads = 5}), baseline), "");
  EXPECT_EQ(FirstDifference(logits({.threads = 5, .attention = {{2, 1}}}), baseline), "");
}

// Rows of all sockets in one frame, which is cut in halves when that pays.
TEST_F(ScalarThreadsTest, SequencesOfAllSocketsInOneFrame) {
  auto engine = MakeEngine(model_.file(), Options({.threads = 4, .attention = {{2, 2}, {2, 2}}}));
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    std::vector<TokenRow> rows;
    for (SlotId slot(0); slot.index() < 4; ++slot) rows.push_back({tokens_[i], slot, i, true});
    engine->Run(rows);
    const auto at = baseline_.begin() + static_cast<std::ptrdiff_t>(i * 301);
    for (size_t slot = 0; slot < 4; ++slot) {
      const auto logits = engine->logits(slot);
      ASSERT_EQ(FirstDifference({logits.begin(), logits.end()}, {at, at + 301}), "")
          << i << " " << slot;
    }
  }
}

}  // namespace
}  // namespace larder::pipeline::engine
