// Sliding windows: near the float32 reference for any length of them, and the same bits in every
// mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/reference/divergence.h"
#include "model/reference/reference.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/engine/engine_testing.h"

namespace larder::pipeline::inline engine {
namespace {

constexpr size_t kVocabulary = 301, kLength = 700;

model::SynthOptions WithWindows(std::string_view architecture, size_t window) {
  return {.shape = {.architecture = architecture,
                    .layers = 4,
                    .dim = 96,
                    .ffn = 160,
                    .heads = 6,
                    .kv_heads = 2,
                    .head_size = 16,
                    .vocab = kVocabulary,
                    .context = 1024,
                    .window = window}};
}

std::vector<float> InFrames(const TestModel& model, TestEngineOptions options, size_t rows) {
  options.max_batch_tokens = 256;
  auto engine = MakeEngine(model.file(), options);
  return RunChunks(*engine, TestTokens(kLength, kVocabulary), rows);
}

// Around what pages and chunks hold. The last positions see windows that begin anywhere in them.
TEST(EngineWindowsTest, AnyWindowIsNearTheReference) {
  std::vector<std::vector<float>> all;
  for (const size_t window : {1, 15, 16, 17, 255, 256, 257, 300}) {
    const TestModel model(WithWindows("llama", window));
    const std::vector<int32_t> tokens = TestTokens(kLength, kVocabulary);
    const auto truth = model::ReferenceModel::Make(model.file()).TeacherForced(tokens);
    const auto logits = InFrames(model, {.threads = 2}, 256);
    EXPECT_LE(model::CompareLogits(truth, logits, kVocabulary).mean_kl, 0.003) << window;
    EXPECT_EQ(FirstDifference(InFrames(model, {.threads = 3}, 7), logits), "") << window;
    for (const auto& other : all)  // one position more or less is seen
      EXPECT_GT(model::CompareLogits(other, logits, kVocabulary).mean_kl, 1e-5) << window;
    all.push_back(logits);
  }
}

// All layers with windows, and three of four.
class EngineWindowsOf : public testing::TestWithParam<std::string_view> {
 protected:
  EngineWindowsOf()
      : model_(WithWindows(GetParam(), 100)), baseline_(InFrames(model_, {.threads = 1}, 256)) {}
  const TestModel model_;
  const std::vector<float> baseline_;
};

TEST_P(EngineWindowsOf, IsNearTheReference) {
  const auto truth = model::ReferenceModel::Make(model_.file(), {.context = 768})
                         .TeacherForced(TestTokens(kLength, kVocabulary));
  EXPECT_LE(model::CompareLogits(truth, baseline_, kVocabulary).mean_kl, 0.003);
}

TEST_P(EngineWindowsOf, ThreadsFramesAndInstructionSetsDoNotMatter) {
  for (const size_t threads : {1, 2, 3, 4, 5}) {
    for (const size_t rows : {1, 7, 256}) {
      if (rows == 1 && threads % 2 == 0) continue;
      EXPECT_EQ(FirstDifference(InFrames(model_, {.threads = threads}, rows), baseline_), "")
          << threads << " threads, frames of " << rows;
    }
  }
  for (const kernels::Isa isa : {kernels::Isa::kScalar, kernels::Isa::kAvx2}) {
    if (!kernels::HostHas(isa)) continue;
    EXPECT_EQ(FirstDifference(InFrames(model_, {.threads = 2, .isa = isa}, 100), baseline_), "")
        << kernels::IsaName(isa);
  }
}

TEST_P(EngineWindowsOf, SocketsAndHalvesDoNotMatter) {
  const auto tokens = TestTokens(kLength, kVocabulary);
  for (const size_t attention_threads : {1, 3}) {
    const TestEngineOptions options{
        .threads = 2, .max_batch_tokens = 256, .attention = {{attention_threads, 1}, {1, 1}}};
    EXPECT_EQ(FirstDifference(InFrames(model_, options, 7), baseline_), "");
    auto engine = MakeEngine(model_.file(), options);
    CutMicroBatches batches(engine->stage(), tokens, baseline_);
    for (const auto& [rows, first_half] :
         {std::pair(250u, 1u), {200u, 140u}, {100u, 99u}, {50u, 7u}, {100u, 50u}})
      batches.Run(rows, first_half);
    ASSERT_EQ(batches.done(), tokens.size());
  }
}

TEST_P(EngineWindowsOf, StagesDoNotMatter) {
  for (const std::vector<TestStage>& stages :
       std::vector<std::vector<TestStage>>{{{2, 2}, {2, 1}}, {{1, 1}, {1, 2, {{2, 1}}}, {2, 1}}}) {
    const TestChain test = MakeTestChain(*model_.file(), stages, 1, stages.size() + 1);
    auto engine = MakeChainEngine(model_.file(), test);
    EXPECT_EQ(
        FirstDifference(RunChunks(*engine, TestTokens(kLength, kVocabulary), engine->max_logits()),
                        baseline_),
        "")
        << stages.size() << " stages";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineWindowsOf,
                         testing::Values("llama", "phi3", "olmo2", "exaone4"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace larder::pipeline::engine
