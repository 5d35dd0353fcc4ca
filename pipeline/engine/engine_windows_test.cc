// Sliding windows: near the float32 reference for any length of them, and the same bits in every
// mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/reference/divergence.h"
#include "model/reference/reference.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/engine/engine_testing.h"

namespace larder::pipeline::inline engine {
namespace {

constexpr size_t kVocabulary = 301, kLength = 700;

model::SynthOptions WithWindows(std::string_view architecture, size_t window) {
  // Layer inputs; layers 8 to 10 have the keys and values of layer 7, layer 11 those of layer 5.
  if (architecture == "gemma4_e2b") {
    model::SynthOptions options = WithWindows("gemma4", window);
    options.shape.layers = 12;
    options.shape.input_size = 40;
    options.shape.shared_kv = 4;
    return options;
  }
  // Experts beside FFNs.
  if (architecture == "gemma4_experts") {
    model::SynthOptions options = WithWindows("gemma4", window);
    options.shape.experts = 6;
    options.shape.experts_used = 2;
    options.shape.expert_ffn = 80;
    return options;
  }
  const bool every_sixth = architecture == "gemma3" || architecture == "gemma4";
  return {.shape = {.architecture = architecture,
                    .layers = every_sixth ? 6u : 4u,
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
  const model::Divergence of = model::CompareLogits(truth, baseline_, kVocabulary);
  // A router that chooses otherwise decides a mean.
  EXPECT_LE(GetParam() == "gemma4_experts" ? of.median_kl : of.mean_kl, 0.003);
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

// Behind the last layer that stores keys and values only the rows go on whose logits are wanted:
// none, some of a slot with others between them, all of one half.
TEST_P(EngineWindowsOf, WhichRowsWantLogitsDoesNotMatter) {
  const auto tokens = TestTokens(kLength, kVocabulary);
  for (const TestEngineOptions& options :
       {TestEngineOptions{.threads = 1, .max_batch_tokens = 256},
        TestEngineOptions{.threads = 3, .max_batch_tokens = 256},
        TestEngineOptions{.threads = 2, .max_batch_tokens = 256, .attention = {{2, 1}}}}) {
    auto engine = MakeEngine(model_.file(), options);
    CutMicroBatches batches(engine->stage(), tokens, baseline_);
    const uint32_t half = options.attention.empty() ? 0 : 60;
    batches.Run(100, half, {});
    batches.Run(100, half, {99});
    batches.Run(100, half, {0, 1, 2, 4, 5, 50, 61, 62, 98});
    batches.Run(20, 0, {});
    batches.Run(20, half == 0 ? 0 : 7, {3, 4, 6});
    batches.Run(20, half == 0 ? 0 : 7, {8, 19});
    batches.Run(100, 0, {0, 7, 8, 99});
    batches.Run(240, 0, {239});
    ASSERT_EQ(batches.done(), tokens.size());
  }
}

TEST_P(EngineWindowsOf, StagesDoNotMatter) {
  const size_t layers = model::ReadModelConfig(*model_.file()).layers;
  for (const std::vector<TestStage>& stages : std::vector<std::vector<TestStage>>{
           {{2, 2}, {layers - 2, 1}}, {{1, 1}, {1, 2, {{2, 1}}}, {layers - 2, 1}}}) {
    const TestChain test = MakeTestChain(*model_.file(), stages, 1, stages.size() + 1);
    auto engine = MakeChainEngine(model_.file(), test);
    EXPECT_EQ(
        FirstDifference(RunChunks(*engine, TestTokens(kLength, kVocabulary), engine->max_logits()),
                        baseline_),
        "")
        << stages.size() << " stages";
  }
}

// Long sequences beside each other, in few chunks: what windows no longer see is given away while
// others go on.
TEST_P(EngineWindowsOf, KvThatIsGivenAwayIsNotMissed) {
  model::SynthOptions options = WithWindows(GetParam(), 50);
  options.shape.context = 4096;
  const TestModel model(options);
  const size_t length = 1300, slots = 3;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> alone;
  {
    auto engine = MakeEngine(model.file(), {.context = 4096});
    for (uint32_t slot = 0; slot < slots; ++slot) {
      tokens.push_back(TestTokens(length, kVocabulary, slot));
      alone.push_back(RunChunks(*engine, tokens[slot], 100));
    }
  }
  for (const TestEngineOptions& with :
       {TestEngineOptions{.threads = 3, .slots = slots},
        TestEngineOptions{.threads = 2, .attention = {{.threads = 2, .slots = slots}}},
        TestEngineOptions{.threads = 1, .attention = {{1, 2}, {2, 1}}}}) {
    TestEngineOptions small = with;
    small.context = 4096;
    small.max_batch_tokens = 64;
    auto engine = MakeEngine(model.file(), small);
    std::vector<size_t> done(slots, 0);
    // A prompt's rows are the most of each micro-batch, one slot's after the other's.
    for (size_t turn = 0; std::ranges::min(done) < length; ++turn) {
      std::vector<TokenRow> rows;
      for (uint32_t slot = 0; slot < slots; ++slot) {
        const size_t n = turn / 4 % slots == slot ? 64 - slots + 1 : 1;
        for (size_t i = 0; i < n && done[slot] < length; ++i, ++done[slot])
          rows.push_back({tokens[slot][done[slot]], SlotId(static_cast<int32_t>(slot)),
                          static_cast<uint32_t>(done[slot]), true});
      }
      engine->Run(rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto at = alone[rows[i].slot.index()].begin() +
                        static_cast<std::ptrdiff_t>(rows[i].position * kVocabulary);
        const auto logits = engine->logits(i);
        ASSERT_EQ(FirstDifference({logits.begin(), logits.end()},
                                  {at, at + static_cast<std::ptrdiff_t>(kVocabulary)}),
                  "")
            << "slot " << rows[i].slot.value << " position " << rows[i].position;
      }
    }
    const std::vector<TokenRow> back = {{tokens[0][100], SlotId(0), 100, true}};
    EXPECT_THROW(engine->Run(back), Error);
    const std::vector<TokenRow> again = {
        {tokens[0][length - 1], SlotId(0), static_cast<uint32_t>(length - 1), true}};
    engine->Run(again);
    const auto at = alone[0].end() - static_cast<std::ptrdiff_t>(kVocabulary);
    EXPECT_EQ(
        FirstDifference({engine->logits(0).begin(), engine->logits(0).end()}, {at, alone[0].end()}),
        "");
    // A sequence that begins as another one, which has gone on.
    ASSERT_EQ(
        engine->kv().Fork(SlotId(1), SlotId(0), length - 10),
        engine->kv().socket_of(SlotId(0)) == engine->kv().socket_of(SlotId(1)) ? length - 10 : 0);
    if (engine->kv().length(SlotId(1)) == 0) continue;
    std::vector<TokenRow> rows;
    for (size_t i = length - 10; i < length; ++i)
      rows.push_back({tokens[0][i], SlotId(1), static_cast<uint32_t>(i), i + 1 == length});
    engine->Run(rows);
    EXPECT_EQ(
        FirstDifference({engine->logits(0).begin(), engine->logits(0).end()}, {at, alone[0].end()}),
        "");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineWindowsOf,
                         testing::Values("llama", "phi3", "olmo2", "exaone4", "gemma2", "gemma3",
                                         "gemma4", "gemma4_e2b", "gemma4_experts", "cohere2"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace larder::pipeline::engine
