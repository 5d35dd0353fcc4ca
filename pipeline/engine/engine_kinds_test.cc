// A model whose layers are of two kinds, which differ in their FFN, their query heads and their KV
// heads: near the float32 reference, and with the same bits in every mode.
#include <gtest/gtest.h>

#include "model/reference/divergence.h"
#include "model/reference/reference.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/engine/engine_testing.h"

namespace larder::pipeline::inline engine {
namespace {

model::SynthOptions TwoKinds(model::Architecture architecture) {
  model::SynthOptions options;
  options.shape = {.architecture = architecture,
                   .layers = 4,
                   .dim = 192,
                   .ffn = 352,
                   .heads = 6,
                   .kv_heads = 2,
                   .head_size = 32,
                   .vocab = 301,
                   .context = 1024,
                   .odd_ffn = 608,
                   .odd_heads = 4,
                   .odd_kv_heads = 4};
  return options;
}

class EngineKindsTest : public testing::TestWithParam<model::Architecture> {
 protected:
  EngineKindsTest() : model_(TwoKinds(GetParam())), tokens_(TestTokens(290, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 100);
  }
  TestModel model_;
  std::vector<int32_t> tokens_;  // more than one chunk of 256 positions
  std::vector<float> baseline_;
};

TEST_P(EngineKindsTest, TheFileSaysIt) {
  const model::ModelConfig config = model::ReadModelConfig(*model_.file());
  ASSERT_EQ(config.kinds.size(), 2u);
  EXPECT_EQ(config.kind_of, (std::vector<uint8_t>{0, 1, 0, 1}));
  EXPECT_EQ(config.layer(3).sizes.ffn, 608u);
  EXPECT_EQ(config.layer(3).sizes.kv_heads, 4u);
  EXPECT_EQ(model::LayersOf(config, 1, 1).OwnKinds(), std::vector<size_t>{1});
  EXPECT_EQ(model::LayersText(config),
            "4 layers, dim 192; 2 of ffn 352, 6 heads / 2 KV heads of 32; 2 of ffn 608, 4 heads / "
            "4 KV heads of 32");
}

TEST_P(EngineKindsTest, IsNearTheReference) {
  const std::vector<float> truth =
      model::ReferenceModel::Make(model_.file()).TeacherForced(tokens_);
  const model::Divergence divergence = model::CompareLogits(truth, baseline_, 301);
  EXPECT_LE(divergence.mean_kl, 0.005);
  EXPECT_GT(divergence.mean_kl, 1e-7);
}

TEST_P(EngineKindsTest, ThreadsAndCutsDoNotMatter) {
  for (const size_t threads : {2, 3, 5}) {
    auto engine = MakeEngine(model_.file(), {.threads = threads});
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "") << threads;
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 9), baseline_), "") << threads;
  }
}

TEST_P(EngineKindsTest, SocketsDoNotMatter) {
  for (const size_t attention_threads : {1, 3}) {
    auto engine =
        MakeEngine(model_.file(), {.threads = 2, .attention = {{attention_threads, 1}, {1, 1}}});
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "");
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 7), baseline_), "");
  }
}

// Stages that have both kinds, and one kind alone.
TEST_P(EngineKindsTest, StagesDoNotMatter) {
  for (const std::vector<TestStage>& stages :
       std::vector<std::vector<TestStage>>{{{2, 2}, {2, 1}}, {{1, 1}, {1, 2, {{2, 1}}}, {2, 1}}}) {
    const TestChain test = MakeTestChain(*model_.file(), stages, 1, stages.size() + 1);
    auto engine = MakeChainEngine(model_.file(), test);
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, engine->max_logits()), baseline_), "")
        << stages.size() << " stages";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineKindsTest,
                         testing::Values(model::Architecture::kLlama, model::Architecture::kQwen2,
                                         model::Architecture::kQwen3),
                         [](const auto& of) {
                           return std::string(model::FamilyOf(of.param).name);
                         });

}  // namespace
}  // namespace larder::pipeline::engine
