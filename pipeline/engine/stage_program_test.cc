// The barriers and waits of a Program, counted in its steps.
#include <gtest/gtest.h>

#include <map>

#include "model/step/step_kind.h"
#include "pipeline/engine/engine_testing.h"
#include "pipeline/stage/cpu_stage.h"

namespace larder::pipeline::inline engine {
namespace {

model::SynthOptions SmallModel(size_t kv_heads) {
  model::SynthOptions options;
  options.shape = {.layers = 3,
                   .dim = 128,
                   .ffn = 256,
                   .heads = 8,
                   .kv_heads = kv_heads,
                   .head_size = 16,
                   .vocab = 320};
  return options;
}

// The barriers of all threads, by layer; without those of the ends: after the embedding, and before
// lm_head's likely panels are refined.
std::map<int, int> Barriers(std::span<const threadpool::Step> steps) {
  using enum model::StepKind;
  std::map<int, int> barriers;
  for (const auto& step : steps) {
    const auto kind = static_cast<model::StepKind>(step.kind);
    if (step.barrier && kind != kEmbed && kind != kLmHead && kind != kLmHeadNorm)
      ++barriers[step.layer];
  }
  return barriers;
}

TEST(StageProgramTest, AtMostFourSynchronisationPointsALayer) {
  for (const size_t kv_heads : {2, 4, 8}) {
    const TestModel model(SmallModel(kv_heads));
    for (const size_t threads : {1, 2, 3, 5}) {
      auto engine = MakeEngine(model.file(), {.threads = threads});
      for (size_t t = 0; t < threads; ++t) {
        const auto steps =
            CpuStage::Of(engine->stage()).steps(weight_node::ProgramForm::kFewRows, t);
        const auto barriers = Barriers(steps);
        ASSERT_EQ(barriers.size(), 3u);
        for (const auto& [layer, n] : barriers)
          EXPECT_EQ(n, 4) << "layer " << layer << ", thread " << t << " of " << threads;
        // Between barriers a thread waits only for a head's producers, for the thread that appends
        // the head's rows and, in frames in which it shares a row with others, for these.
        for (const auto& step : steps) {
          if (step.wait_count == 0) continue;
          EXPECT_TRUE(step.kind == static_cast<uint16_t>(model::StepKind::kAppend) ||
                      step.kind == static_cast<uint16_t>(model::StepKind::kAttention) ||
                      (step.kind == static_cast<uint16_t>(model::StepKind::kMerge) &&
                       step.needed != nullptr));
          EXPECT_LE(step.wait_count, CeilDiv(threads, kv_heads) + 2);
        }
      }
    }
  }
}

// A router's logits have to be there before anybody knows the experts.
TEST(StageProgramTest, ExpertsNeedOneMore) {
  model::SynthOptions options = SmallModel(2);
  for (const char* family : {"qwen3moe", "qwen2moe"}) {
    options.shape.architecture = family;
    const TestModel model(options);
    auto engine = MakeEngine(model.file(), {.threads = 3});
    for (size_t t = 0; t < 3; ++t) {
      const auto steps = CpuStage::Of(engine->stage()).steps(weight_node::ProgramForm::kFewRows, t);
      for (const auto& [layer, n] : Barriers(steps)) EXPECT_EQ(n, 5) << family << layer;
    }
  }
}

TEST(StageProgramTest, BarriersMatchOnAllThreads) {
  const TestModel model(SmallModel(2));
  auto engine = MakeEngine(model.file(), {.threads = 5});
  for (const auto form :
       {weight_node::ProgramForm::kFewRows, weight_node::ProgramForm::kManyRows}) {
    std::vector<size_t> barriers;
    for (size_t t = 0; t < 5; ++t) {
      const auto steps = CpuStage::Of(engine->stage()).steps(form, t);
      barriers.push_back(static_cast<size_t>(std::count_if(
          steps.begin(), steps.end(), [](const auto& step) { return step.barrier; })));
    }
    EXPECT_EQ(std::count(barriers.begin(), barriers.end(), barriers[0]), 5);
  }
}

// The last five of twelve layers have the keys and values of layers before them.
TEST(StageProgramTest, SharedKeysAndValuesAreOfLogitRowsAlone) {
  model::SynthOptions options = SmallModel(2);
  options.shape.architecture = "gemma4";
  options.shape.layers = 12;
  options.shape.window = 32;
  options.shape.input_size = 32;
  options.shape.shared_kv = 5;
  const TestModel model(options);
  auto engine = MakeEngine(model.file(), {.threads = 2});
  for (const auto form :
       {weight_node::ProgramForm::kFewRows, weight_node::ProgramForm::kManyRows}) {
    for (size_t t = 0; t < 2; ++t) {
      std::map<bool, size_t> of_all;
      for (const auto& step : CpuStage::Of(engine->stage()).steps(form, t)) {
        if (step.layer == 6 || step.kind == static_cast<uint16_t>(model::StepKind::kEmbed))
          continue;  // in the last one that stores something, rows are dropped
        const bool stores = step.layer < 6;
        EXPECT_EQ(step.part == 0, stores) << "layer " << step.layer << ", kind " << step.kind;
        ++of_all[stores];
      }
      EXPECT_GT(of_all[true], 20u);
      EXPECT_GT(of_all[false], 20u);
    }
  }
}

TEST(StageProgramTest, AThreadThatOwnsItsHeadsWaitsForNobody) {
  const TestModel model(SmallModel(4));
  auto engine = MakeEngine(model.file(), {.threads = 2});  // two whole KV heads per thread
  for (size_t t = 0; t < 2; ++t) {
    for (const auto& step :
         CpuStage::Of(engine->stage()).steps(weight_node::ProgramForm::kFewRows, t))
      EXPECT_EQ(step.wait_count, 0u);
  }
}

}  // namespace
}  // namespace larder::pipeline::engine
