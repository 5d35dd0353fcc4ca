// Panels computed by other threads than they lie with: maps are complete, and Programs built from
// any of them give the same bits.
#include "weight_node/panel_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "model/step/batch_rows.h"
#include "model/synth/synth.h"
#include "weight_node/weight_node.h"

namespace larder::weight_node {
namespace {

using Work = std::array<std::vector<ThreadWork>, kProgramForms>;

std::vector<PanelMatrix> Matrices() {
  return {PanelMatrix::kQkv, PanelMatrix::kO, PanelMatrix::kFfn, PanelMatrix::kDown,
          PanelMatrix::kLmHead};
}

uint32_t PanelsOf(const ShardPlan& homes, PanelMatrix matrix) {
  return homes.threads.back().of(0, matrix).end;
}

// Assigns each panel to the thread that owner(form, matrix, panel) returns.
template <typename Owner>
Work WorkOf(const ShardPlan& homes, Owner owner) {
  Work work;
  for (size_t form = 0; form < kProgramForms; ++form) {
    work[form].assign(homes.threads.size(), ThreadWork(homes.threads[0].whole.size()));
    for (const PanelMatrix matrix : Matrices()) {
      for (uint32_t panel = 0; panel < PanelsOf(homes, matrix); ++panel) {
        auto& ranges = work[form][owner(form, matrix, panel)][MatrixId(0, matrix)];
        if (!ranges.empty() && ranges.back().end == panel) {
          ++ranges.back().end;
        } else {
          ranges.push_back({panel, panel + 1});
        }
      }
    }
  }
  return work;
}

void RunFakeAttention(const void* operand, void* batch);

// A weight node without a thread pool: between barriers, the steps of the threads run one thread
// after another.
class PanelMapTest : public testing::Test {
 protected:
  static constexpr size_t kDecodeRows = 8, kRows = 20;

  void SetUp() override {
    model::SynthOptions options;
    options.shape = Shape();
    model::WriteSynth(options, folder_ / "model.gguf");
    file_ = model::GgufFile::Open(folder_ / "model.gguf");
    config_ = model::ReadModelConfig(*file_);
  }

  virtual model::ModelShape Shape() const {
    model::ModelShape shape;
    shape.architecture = "qwen2";  // with biases
    shape.dim = 96;
    shape.ffn = 288;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_size = 40;  // groups of 10 panels
    shape.vocab = 270;
    return shape;
  }

  std::unique_ptr<WeightNode> PackedNode(const ShardPlan& homes,
                                         const std::optional<PanelMap>& map = {},
                                         size_t halves = 1) const {
    const size_t threads = homes.threads.size();
    auto node = std::make_unique<WeightNode>(
        config_, homes,
        WeightNodeOptions{.isa = kernels::BestIsa(),
                          .few_rows = kDecodeRows,
                          .max_batch_tokens = kRows,
                          .logit_rows = kRows,
                          .node_of_thread = std::vector<NumaNodeId>(threads, NumaNodeId(0)),
                          .halves = halves,
                          .panels = map});
    PackedByteCounter progress;
    for (size_t t = 0; t < threads; ++t) node->Pack(*file_, t, progress);
    node->Finish();
    return node;
  }

  // The logits of `rows` tokens, with RunFakeAttention in place of attention.
  std::vector<float> Logits(size_t threads, size_t rows, const std::optional<PanelMap>& map) {
    return Logits(MakeShardPlan(config_, threads), rows, map);
  }
  std::vector<float> Logits(const ShardPlan& homes, size_t rows,
                            const std::optional<PanelMap>& map) {
    const size_t threads = homes.threads.size();
    const auto packed = PackedNode(homes, map);
    WeightNode& node = *packed;
    const ProgramForm form = rows <= kDecodeRows ? ProgramForm::kFewRows : ProgramForm::kManyRows;
    std::vector<WeightNode::Steps> steps(threads);
    for (size_t t = 0; t < threads; ++t) {
      node.AddEmbed(t, steps[t]);
      for (size_t layer = 0; layer < config_.layers; ++layer) {
        node.AddBeforeAttention(t, layer, form, 0, false, steps[t], [](size_t) { return nullptr; });
        threadpool::Step meet;
        meet.barrier = true;
        steps[t].Add(meet);
        if (t == 0) meet.kernel = RunFakeAttention;
        meet.operand = &node.activations();
        steps[t].Add(meet);
        node.AddAfterAttention(t, layer, form, 0, false, steps[t]);
      }
      node.AddLmHead(t, form, steps[t]);
    }
    Run(steps, rows);
    std::vector<float> logits;
    for (size_t m = 0; m < rows; ++m) {
      const float* row = node.activations().logits.row(m);
      logits.insert(logits.end(), row, row + config_.vocab);
    }
    return logits;
  }

  static void Run(const std::vector<WeightNode::Steps>& steps, size_t rows) {
    std::vector<int32_t> token(rows);
    std::vector<uint32_t> logit_row(rows);
    for (size_t m = 0; m < rows; ++m) {
      token[m] = static_cast<int32_t>(m * 37 % 270);
      logit_row[m] = static_cast<uint32_t>(m);
    }
    model::BatchRows batch;
    batch.rows = batch.logit_rows = static_cast<uint32_t>(rows);
    batch.token = token.data();
    batch.logit_row = logit_row.data();
    std::vector<size_t> next(steps.size(), 0);
    while (next[0] < steps[0].steps().size()) {
      std::vector<bool> met(steps.size(), false);
      for (size_t turn = 0; std::ranges::count(met, true) < std::ssize(met); ++turn) {
        ASSERT_LE(turn, steps.size()) << "threads wait for each other";
        for (size_t t = 0; t < steps.size(); ++t) {
          for (; !met[t] && next[t] < steps[t].steps().size(); ++next[t]) {
            const threadpool::Step& step = steps[t].steps()[next[t]];
            if (!std::all_of(step.waits, step.waits + step.wait_count,
                             [&](auto* flag) { return flag->Reached(step.epoch_offset); }))
              break;
            if (step.kernel != nullptr) step.kernel(step.operand, &batch);
            if (step.signal != nullptr) step.signal->Signal(step.epoch_offset);
            met[t] = step.barrier;
          }
          if (next[t] == steps[t].steps().size()) met[t] = true;
        }
      }
    }
    for (size_t t = 0; t < steps.size(); ++t)
      EXPECT_EQ(next[t], steps[t].steps().size()) << "barriers of thread " << t;
  }

  TemporaryFolder folder_;
  std::shared_ptr<const model::GgufFile> file_;
  model::ModelConfig config_;
};

// Some mixture of all columns of q, k and v.
void RunFakeAttention(const void* operand, void* batch) {
  const auto& activations = *static_cast<const Activations*>(operand);
  const auto& rows = *static_cast<const model::BatchRows*>(batch);
  constexpr size_t kQkvColumns = 320, kAttnColumns = 160;  // those of the shape above
  for (uint32_t m = 0; m < rows.rows; ++m) {
    for (size_t i = 0; i < kAttnColumns; ++i)
      activations.attn.row(m)[i] =
          activations.qkv.row(m)[i] - activations.qkv.row(m)[kQkvColumns - 1 - i];
  }
}

TEST(QkvParts, AreWithinTheirGroup) {
  model::ModelShape model_shape;
  model_shape.heads = 8;
  model_shape.kv_heads = 4;
  model_shape.head_size = 40;  // a group is 2 + 2 heads of 40 rows: 10 panels
  const auto config = model::ConfigOfShape(model_shape, "test");
  const LayerShape shape(config.kinds[0]);
  ASSERT_EQ(shape.group_panels, 10u);
  for (const size_t threads : {1, 3, 5, 16}) {
    std::vector<size_t> owners(shape.qkv_panels, 0);
    const PanelMap map(MakeShardPlan(config, threads));
    for (size_t t = 0; t < threads; ++t) {
      for (const QkvPart& part :
           QkvParts(shape, map.Work(ProgramForm::kFewRows, t, 0, PanelMatrix::kQkv))) {
        EXPECT_GE(part.extent.panels.begin, part.group * shape.group_panels);
        EXPECT_LE(part.extent.panels.end, (part.group + 1) * shape.group_panels);
        for (uint32_t panel = part.extent.panels.begin; panel < part.extent.panels.end; ++panel)
          ++owners[panel];
      }
    }
    EXPECT_TRUE(std::all_of(owners.begin(), owners.end(), [](size_t n) { return n == 1; }));
  }
}

TEST_F(PanelMapTest, WorkIsAtHomeByDefault) {
  const ShardPlan homes = MakeShardPlan(config_, 3);
  const PanelMap map(homes);
  for (size_t t = 0; t < 3; ++t) {
    for (const PanelMatrix matrix : Matrices()) {
      for (const ProgramForm form : {ProgramForm::kFewRows, ProgramForm::kManyRows}) {
        const auto extents = map.Work(form, t, 0, matrix);
        ASSERT_EQ(extents.size(), 1u);
        EXPECT_EQ(extents[0].home, t);
        EXPECT_EQ(extents[0].panels.begin, homes.threads[t].of(0, matrix).begin);
        EXPECT_EQ(extents[0].panels.count(), homes.threads[t].of(0, matrix).count());
      }
    }
  }
}

TEST_F(PanelMapTest, ExtentsEndWhereHomesDo) {
  const ShardPlan homes = MakeShardPlan(config_, 3);
  const PanelMap map(homes, WorkOf(homes, [](size_t, PanelMatrix, uint32_t) { return 1; }));
  const auto all = map.Work(ProgramForm::kFewRows, 1, 0, PanelMatrix::kQkv);
  ASSERT_EQ(all.size(), 3u);
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(all[t].home, t);
    EXPECT_EQ(all[t].panels.begin, homes.threads[t].of(0, PanelMatrix::kQkv).begin);
    EXPECT_EQ(all[t].panels.end, homes.threads[t].of(0, PanelMatrix::kQkv).end);
  }
  const auto none = map.Work(ProgramForm::kFewRows, 0, 0, PanelMatrix::kQkv);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].panels.count(), 0u);
}

TEST_F(PanelMapTest, APanelWithoutWorkerOrWithTwoIsABug) {
  const ShardPlan homes = MakeShardPlan(config_, 2);
  Work work = WorkOf(homes, [](size_t, PanelMatrix, uint32_t panel) { return panel % 2; });
  ++work[1][0][MatrixId(0, PanelMatrix::kDown)].front().end;
  EXPECT_DEATH(PanelMap(homes, work), "computed twice or never");
  PanelRange& down = work[1][0][MatrixId(0, PanelMatrix::kDown)].front();
  down.end = down.begin;
  EXPECT_DEATH(PanelMap(homes, work), "computed twice or never");
}

// Thread 0 computes all panels: its parts of a group lie in three arenas, and only the last one
// signals.
TEST_F(PanelMapTest, AGroupIsSignalledOnceAndColumnsAreSentByWhoeverComputedThem) {
  const ShardPlan homes = MakeShardPlan(config_, 3);
  const auto packed = PackedNode(
      homes, PanelMap(homes, WorkOf(homes, [](size_t, PanelMatrix, uint32_t) { return 0; })));
  WeightNode& node = *packed;
  std::vector<sync::EpochFlag> flags(config_.kinds[0].sizes.kv_heads);
  WeightNode::Steps steps;
  node.AddBeforeAttention(0, 0, ProgramForm::kFewRows, 0, false, steps,
                          [&](size_t group) { return &flags[group]; });
  std::vector<const sync::EpochFlag*> signals;
  for (const threadpool::Step& step : steps.steps()) signals.push_back(step.signal);
  // The norm; group 0 in arenas 0 and 1, group 1 in arenas 1 and 2.
  EXPECT_EQ(signals,
            (std::vector<const sync::EpochFlag*>{nullptr, nullptr, &flags[0], nullptr, &flags[1]}));

  size_t columns = 0;
  for (size_t t = 0; t < 3; ++t) {
    WeightNode::Steps sends;
    node.AddSend(t, ProgramForm::kFewRows, false, sends);
    for (const threadpool::Step& step : sends) {
      const auto& operand = *static_cast<const TransferOperand*>(step.operand);
      if (operand.count == 0) continue;
      EXPECT_EQ(operand.first, columns);
      columns += operand.count;
    }
    EXPECT_EQ(columns, config_.dim) << "thread " << t;
  }
}

TEST_F(PanelMapTest, SameBitsWhoeverComputesAPanel) {
  std::mt19937 random(3);
  for (const size_t rows : {size_t{1}, size_t{5}, kRows}) {
    const std::vector<float> expected = Logits(1, rows, {});
    EXPECT_TRUE(std::ranges::any_of(expected, [](float logit) { return logit != 0.0f; }));
    EXPECT_TRUE(Logits(3, rows, {}) == expected) << rows << " rows, each thread at home";
    const ShardPlan homes = MakeShardPlan(config_, 3);
    const auto home = [&](PanelMatrix matrix, uint32_t panel) {
      size_t t = 0;
      while (panel >= homes.threads[t].of(0, matrix).end) ++t;
      return t;
    };
    const auto expect_same = [&](const std::string& what, auto owner) {
      EXPECT_TRUE(Logits(3, rows, PanelMap(homes, WorkOf(homes, owner))) == expected)
          << rows << " rows, " << what;
    };
    expect_same("thread 0 helps thread 1", [&](size_t, PanelMatrix matrix, uint32_t panel) {
      const size_t owner = home(matrix, panel);
      return owner == 1 && panel % 2 == 0 ? 0 : owner;
    });
    expect_same("all on thread 2 in prefill, at home in decode",
                [&](size_t form, PanelMatrix matrix, uint32_t panel) {
                  return form == static_cast<size_t>(ProgramForm::kManyRows) ? 2
                                                                             : home(matrix, panel);
                });
    expect_same("anywhere", [&](size_t, PanelMatrix, uint32_t) { return random() % 3; });
  }
}

// Panels that are cut along their inputs: sums of chunks come from several threads.
class CutPanelsTest : public PanelMapTest {
 protected:
  model::ModelShape Shape() const override {
    model::ModelShape shape = PanelMapTest::Shape();
    shape.dim = 1056;  // 33 blocks: 2 chunks, the second one of one block
    shape.ffn = 2304;  // 72 blocks: 3 chunks
    return shape;
  }
};

TEST_F(CutPanelsTest, SameBitsWhereverPanelsAreCut) {
  for (const size_t rows : {size_t{1}, size_t{5}, kRows}) {
    const std::vector<float> expected = Logits(1, rows, {});
    EXPECT_TRUE(std::ranges::any_of(expected, [](float logit) { return logit != 0.0f; }));
    // 160: many threads have nothing but chunks of somebody else's panel.
    for (const size_t threads : {5, 7, 160}) {
      const ShardPlan homes = MakeShardPlan(config_, threads, 1);
      size_t parts = 0;
      for (const ThreadShard& shard : homes.threads) parts += shard.parts[0].size();
      EXPECT_GT(parts, 0u);
      EXPECT_TRUE(Logits(homes, rows, {}) == expected) << rows << " rows, " << threads;
    }
  }
}

// The panel that a thread begins belongs to it alone: nobody else sends or keeps its columns.
TEST_F(CutPanelsTest, AColumnIsSentByWhoeverHasThePanelsFirstChunk) {
  const ShardPlan homes = MakeShardPlan(config_, 160, 1);
  const auto packed = PackedNode(homes);
  WeightNode& node = *packed;
  std::vector<size_t> sent(config_.dim, 0), kept(config_.dim, 0);
  for (size_t t = 0; t < 160; ++t) {
    WeightNode::Steps steps;
    node.AddSend(t, ProgramForm::kFewRows, false, steps);
    for (const threadpool::Step& step : steps.steps()) {
      const auto& operand = *static_cast<const TransferOperand*>(step.operand);
      for (size_t i = 0; i < operand.count; ++i) ++sent.at(operand.first + i);
    }
    WeightNode::Steps keeps;
    node.AddKeep(t, 0, ProgramForm::kFewRows, keeps);
    for (const threadpool::Step& step : keeps.steps()) {
      if (step.kernel != KeepStep) continue;
      const auto& operand = *static_cast<const KeepOperand*>(step.operand);
      for (size_t i = 0; i < operand.count; i += sizeof(float))
        ++kept.at((operand.first + i) / sizeof(float));
    }
  }
  EXPECT_TRUE(std::ranges::all_of(sent, [](size_t n) { return n == 1; }));
  EXPECT_TRUE(std::ranges::all_of(kept, [](size_t n) { return n == 1; }));
}

// Halves alternate in one Program: a flag that both signalled would let one half's thread go on
// with the other half's sums.
TEST_F(CutPanelsTest, EachHalfHasFlagsOfItsOwn) {
  const ShardPlan homes = MakeShardPlan(config_, 7, 1);
  const auto packed = PackedNode(homes, {}, 2);
  WeightNode& node = *packed;
  std::set<const sync::EpochFlag*> flags[2], waited[2];
  for (size_t half = 0; half < 2; ++half) {
    for (size_t t = 0; t < 7; ++t) {
      WeightNode::Steps steps;
      node.AddAfterAttention(t, 0, ProgramForm::kFewRows, half, false, steps);
      for (const threadpool::Step& step : steps.steps()) {
        if (step.signal != nullptr) flags[half].insert(step.signal);
        waited[half].insert(step.waits, step.waits + step.wait_count);
      }
    }
    EXPECT_FALSE(flags[half].empty());
    EXPECT_EQ(flags[half], waited[half]);
  }
  for (const sync::EpochFlag* flag : flags[1]) EXPECT_FALSE(flags[0].contains(flag));
  node.RefreshFlags(77);
  for (const sync::EpochFlag* flag : flags[0]) EXPECT_EQ(flag->Load(), 0u);
  for (const sync::EpochFlag* flag : flags[1]) EXPECT_EQ(flag->Load(), 77u);
}

}  // namespace
}  // namespace larder::weight_node
