// Models whose panels are so few that threads share them along their inputs (ShardPlan): the same
// bits as one thread gives, with real threads, colocated and separated, and in halves.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/engine/engine_testing.h"

namespace larder::pipeline::inline engine {
namespace {

using weight_node::PanelMatrix;

struct CutModel {
  const char* name;
  size_t dim, ffn, heads, head_size;
  std::vector<PanelMatrix> cut;  // with 2 and 5 threads
  const char* family = "llama";
  bool output_biases = false, gate_biases = false;
};

class CutPanelsTest : public testing::TestWithParam<CutModel> {
 protected:
  CutPanelsTest() : model_(Options()), tokens_(TestTokens(290, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 100);
  }
  static model::SynthOptions Options() {
    model::SynthOptions options;
    options.shape = {.architecture = GetParam().family,
                     .layers = 2,
                     .dim = GetParam().dim,
                     .ffn = GetParam().ffn,
                     .heads = GetParam().heads,
                     .kv_heads = 2,
                     .head_size = GetParam().head_size,
                     .vocab = 301,
                     .context = 1024,
                     .output_biases = GetParam().output_biases,
                     .gate_biases = GetParam().gate_biases};
    return options;
  }
  TestModel model_;
  std::vector<int32_t> tokens_;  // more than one chunk of 256 positions
  std::vector<float> baseline_;
};
INSTANTIATE_TEST_SUITE_P(
    Models, CutPanelsTest,
    testing::Values(
        CutModel{"FewRows", 48, 8192, 64, 128, {PanelMatrix::kO, PanelMatrix::kDown}},
        CutModel{"FewRowsWithBiases",
                 48,
                 8192,
                 64,
                 128,
                 {PanelMatrix::kO, PanelMatrix::kDown},
                 "llama",
                 true},
        // norms follow O and down
        CutModel{"FewRowsBeforeNorms",
                 48,
                 8192,
                 64,
                 128,
                 {PanelMatrix::kO, PanelMatrix::kDown},
                 "glm4",
                 true},
        CutModel{"FewRowsOfWholeRowNorms",
                 48,
                 8192,
                 64,
                 128,
                 {PanelMatrix::kO, PanelMatrix::kDown},
                 "olmo2"},
        CutModel{"FewUnitsWithBiases", 4096, 96, 2, 64, {PanelMatrix::kFfn}, "llama", true, true},
        CutModel{"FewUnitsWithoutGates", 4096, 96, 2, 64, {PanelMatrix::kFfn}, "arcee", true, true},
        // attention follows, and the rows that are kept behind it take their blocks with them
        CutModel{"FewUnitsBeforeAttention", 4096, 96, 2, 64, {PanelMatrix::kFfn}, "command-r"},
        CutModel{"FewUnits", 4096, 96, 2, 64, {PanelMatrix::kFfn}}),
    [](const auto& model) { return model.param.name; });

TEST_P(CutPanelsTest, ThePlanCutsThem) {
  for (const size_t threads : {2, 5}) {
    const StagePlan plan = MakeTestPlan(*model_.file(), {.threads = threads});
    for (const PanelMatrix matrix : GetParam().cut) {
      EXPECT_TRUE(std::ranges::any_of(plan.shards.threads,
                                      [&](const auto& shard) {
                                        return std::ranges::any_of(shard.parts[0],
                                                                   [&](const auto& part) {
                                                                     return part.matrix == matrix;
                                                                   });
                                      }))
          << threads << " threads, matrix " << static_cast<int>(matrix);
    }
  }
}

TEST_P(CutPanelsTest, ThreadsDoNotMatter) {
  for (const size_t threads : {2, 5}) {
    auto engine = MakeEngine(model_.file(), {.threads = threads});
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100), baseline_), "") << threads;
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 9), baseline_), "") << threads;
  }
}

TEST_P(CutPanelsTest, HalvesGiveTheSameBits) {
  for (const size_t threads : {2, 5}) {
    auto engine = MakeEngine(model_.file(), {.threads = threads, .attention = {{2, 1}}});
    CutMicroBatches batches(engine->stage(), tokens_, baseline_);
    for (const auto& [rows, first_half] :
         {std::pair(100u, 1u), {100u, 63u}, {30u, 29u}, {20u, 7u}, {40u, 20u}})
      batches.Run(rows, first_half);
    ASSERT_EQ(batches.done(), tokens_.size());
  }
}

}  // namespace
}  // namespace larder::pipeline::engine
