// The steps that a WeightNode makes: their kinds in order, their barriers, and which of them take
// the logit rows alone. What they compute is compared in panel_map_test.cc and in pipeline/engine/.
#include "weight_node/weight_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "model/synth/synth.h"
#include "weight_node/mixed_model_testing.h"

namespace larder::weight_node {
namespace {

using model::StepKind;
using Steps = WeightNode::Steps;

constexpr size_t kThreads = 2;

class WeightNodeTest : public testing::TestWithParam<ProgramForm> {
 protected:
  WeightNodeTest()
      : model_(MixedShape(), MixedType), config_(model::ReadModelConfig(*model_.file())) {
    node_ = std::make_unique<WeightNode>(
        config_, MakeShardPlan(config_, kThreads),
        WeightNodeOptions{.isa = kernels::BestIsa(),
                          .node_of_thread = std::vector<NumaNodeId>(kThreads, NumaNodeId(0))});
    PackedByteCounter progress;
    for (size_t t = 0; t < kThreads; ++t) node_->Pack(*model_.file(), t, progress);
    node_->Finish();
  }

  // The parts of a Program, in their order.
  Steps Embed(size_t thread) {
    Steps steps;
    node_->AddEmbed(thread, steps);
    return steps;
  }
  Steps Before(size_t thread, size_t layer) {
    Steps steps;
    node_->AddBeforeAttention(thread, layer, GetParam(), 0, false, steps,
                              [](size_t) { return nullptr; });
    return steps;
  }
  Steps After(size_t thread, size_t layer, bool kept) {
    Steps steps;
    if (kept) node_->AddKeep(thread, layer, GetParam(), steps);
    node_->AddAfterAttention(thread, layer, GetParam(), 0, kept, steps);
    return steps;
  }
  Steps LmHead(size_t thread) {
    Steps steps;
    node_->AddLmHead(thread, GetParam(), steps);
    return steps;
  }
  bool many_rows() const { return GetParam() == ProgramForm::kManyRows; }

  const MixedModel model_;
  const model::ModelConfig config_;
  std::unique_ptr<WeightNode> node_;
};
INSTANTIATE_TEST_SUITE_P(Forms, WeightNodeTest,
                         testing::Values(ProgramForm::kFewRows, ProgramForm::kManyRows),
                         [](const auto& form) {
                           return form.param == ProgramForm::kFewRows ? "FewRows" : "ManyRows";
                         });

// Kinds in order, a run of one kind (a thread's parts of QKV) as one.
std::vector<StepKind> KindsOf(const Steps& steps) {
  std::vector<StepKind> kinds;
  std::ranges::transform(steps, std::back_inserter(kinds), [](const threadpool::Step& step) {
    return static_cast<StepKind>(step.kind);
  });
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

size_t BarriersOf(const Steps& steps) {
  return static_cast<size_t>(std::ranges::count_if(steps, &threadpool::Step::barrier));
}

TEST_P(WeightNodeTest, KindsAreInTheOrderOfALayer) {
  using enum StepKind;
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(KindsOf(Embed(t)), std::vector{kEmbed});
    for (size_t layer = 0; layer < config_.layers; ++layer) {
      EXPECT_EQ(KindsOf(Before(t, layer)), (std::vector{kNorm, kQkv}));
      EXPECT_EQ(KindsOf(After(t, layer, false)),
                (std::vector{kQuantize, kO, kNorm, kGateUp, kDown}));
    }
    EXPECT_EQ(KindsOf(LmHead(t)), (std::vector{kLmHeadNorm, kLmHead}));
  }
}

// Of a layer's barriers the caller makes one, before O. The others are after O, after the FFN units
// and after down; in micro-batches of many rows also after each row-wise step that threads then
// share.
TEST_P(WeightNodeTest, ALayerHasFourBarriersAndThreeMoreForManyRows) {
  constexpr size_t kOfTheCaller = 1, kShared = 3;  // two norms, and the quantisation of what
                                                   // attention gives
  for (size_t t = 0; t < kThreads; ++t) {
    for (size_t layer = 0; layer < config_.layers; ++layer) {
      EXPECT_EQ(kOfTheCaller + BarriersOf(Before(t, layer)) + BarriersOf(After(t, layer, false)),
                many_rows() ? 4 + kShared : 4);
    }
    // Before a thread refines its likely panels, it must know the largest logits of all.
    EXPECT_EQ(BarriersOf(LmHead(t)), many_rows() ? 2u : 1u);
    EXPECT_EQ(BarriersOf(Embed(t)), 1u);
  }
}

// Threads that meet at different steps would wait for each other for ever, or read rows too early.
TEST_P(WeightNodeTest, AllThreadsMeetAfterTheSameKinds) {
  const auto met_after = [](const Steps& steps) {
    std::vector<StepKind> kinds;
    for (const threadpool::Step& step : steps)
      if (step.barrier) kinds.push_back(static_cast<StepKind>(step.kind));
    return kinds;
  };
  using enum StepKind;
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(met_after(Before(t, 0)), many_rows() ? std::vector{kNorm} : std::vector<StepKind>());
    EXPECT_EQ(met_after(After(t, 0, false)),
              many_rows() ? (std::vector{kQuantize, kO, kNorm, kGateUp, kDown})
                          : (std::vector{kO, kGateUp, kDown}));
  }
}

// AddKeep's steps are the last of a frame that know all rows: they pick the logit rows, and the
// steps behind them take a batch of these alone, so they pick no more. Without AddKeep nothing
// before lm_head picks rows.
TEST_P(WeightNodeTest, OnlyWhatIsBehindTheLastAttentionPicksLogitRows) {
  const auto picks = [](const Steps& steps) {
    size_t count = 0;
    for (const threadpool::Step& step : steps) {
      if (step.kernel == KeepStep || step.kernel == HeadStep || step.kernel == RefineStep) ++count;
      if (step.kernel == NormStep)
        count += static_cast<const NormOperand*>(step.operand)->planes != nullptr;
      if (step.kernel == QuantizeStep)
        count += static_cast<const QuantizeOperand*>(step.operand)->logit_rows;
    }
    return count;
  };
  const size_t last = config_.layers - 1;
  for (size_t t = 0; t < kThreads; ++t) {
    for (size_t layer = 0; layer < config_.layers; ++layer)
      EXPECT_EQ(picks(Before(t, layer)) + picks(After(t, layer, false)), 0u);
    const Steps kept = After(t, last, true);
    ASSERT_GE(kept.steps().size(), 2u);
    EXPECT_EQ(kept.steps()[0].kernel, KeepStep);
    EXPECT_EQ(kept.steps()[1].kernel, QuantizeStep);
    EXPECT_EQ(picks(kept), 2u) << "the residual's rows and those of what attention gives";
    EXPECT_EQ(KindsOf(kept), KindsOf(After(t, last, false))) << "the same steps on fewer rows";
    EXPECT_EQ(BarriersOf(kept), BarriersOf(After(t, last, false)));
    const Steps head = LmHead(t);
    EXPECT_EQ(picks(head), head.steps().size());
  }
}

// In layers whose FFN has attention's input, it is computed before attention.
TEST(WeightNodeParallelTest, TheLastFfnIsOfTheLogitRowsAlone) {
  model::SynthOptions options = MixedShape();
  options.shape.architecture = "command-r";
  options.shape.tied = true;
  const MixedModel model(options, [](const std::string&) { return model::TensorType::kQ8_0; });
  const model::ModelConfig config = model::ReadModelConfig(*model.file());
  WeightNode node(config, MakeShardPlan(config, 1),
                  {.isa = kernels::BestIsa(), .node_of_thread = {NumaNodeId(0)}});
  PackedByteCounter progress;
  node.Pack(*model.file(), 0, progress);
  node.Finish();
  for (const bool kept : {false, true}) {
    Steps steps;
    node.AddBeforeAttention(0, 1, ProgramForm::kManyRows, 0, kept, steps,
                            [](size_t) { return nullptr; });
    const auto ffn = std::ranges::find_if(
        steps.steps(), [](const threadpool::Step& step) { return step.kernel == FfnStep; });
    ASSERT_NE(ffn, steps.steps().end());
    EXPECT_EQ(static_cast<const FfnOperand*>(ffn->operand)->logit_rows, kept);
  }
}

// Where the residual goes to another stage, its last one sends the rows that the ends need, others
// all.
TEST_P(WeightNodeTest, SendsAllRowsOrTheLogitRows) {
  for (const bool logit_rows : {false, true}) {
    Steps steps;
    node_->AddSend(0, GetParam(), logit_rows, steps);
    EXPECT_EQ(KindsOf(steps), std::vector{StepKind::kSend});
    EXPECT_EQ(BarriersOf(steps), 0u);
    for (const threadpool::Step& step : steps)
      EXPECT_EQ(static_cast<const TransferOperand*>(step.operand)->logit_rows, logit_rows);
  }
}

}  // namespace
}  // namespace larder::weight_node
