// Every panel has exactly one owner, and the shares are as equal as whole panels allow.
#include "weight_node/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/families/family.h"
#include "model/synth/synth.h"

namespace larder::weight_node {
namespace {

model::ModelConfig Config(size_t heads, size_t kv_heads, size_t head_size) {
  model::ModelShape shape;
  shape.layers = 3;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_size = head_size;
  return model::ConfigOfShape(shape, "test");
}

// Expects the ranges of all threads, in order, to be 0 .. count without a gap.
void ExpectWhole(const ShardPlan& plan, PanelMatrix matrix, size_t count) {
  uint32_t next = 0, least = UINT32_MAX, most = 0;
  for (const ThreadShard& shard : plan.threads) {
    const PanelRange range = shard.of(0, matrix);
    EXPECT_EQ(range.begin, next);
    next = range.end;
    least = std::min(least, range.count());
    most = std::max(most, range.count());
  }
  EXPECT_EQ(next, count);
  EXPECT_LE(most - least, 1u);
}

TEST(ShardPlan, EachPanelHasOneOwner) {
  for (const auto& config : {Config(8, 4, 32), Config(6, 1, 64), Config(4, 4, 40)}) {
    const LayerShape shape(config.kinds[0]);
    for (const size_t threads : {1, 2, 3, 7, 96}) {
      const ShardPlan plan = MakeShardPlan(config, threads);
      ASSERT_EQ(plan.threads.size(), threads);
      ExpectWhole(plan, PanelMatrix::kQkv, shape.qkv_panels);
      ExpectWhole(plan, PanelMatrix::kO, shape.o_panels);
      ExpectWhole(plan, PanelMatrix::kFfn, shape.ffn_units);
      ExpectWhole(plan, PanelMatrix::kDown, shape.down_panels);
      ExpectWhole(plan, PanelMatrix::kLmHead, plan.lm_head_panels);
      uint64_t bytes = 0;
      for (size_t t = 0; t < threads; ++t) bytes += plan.ThreadBytes(config, t);
      EXPECT_EQ(bytes, LayerBytes(config, 0, config.layers) +
                           plan.lm_head_panels * HeadPanel(config).bytes());
      uint64_t matrices = 0;
      for (size_t m = 0; m < kPanelMatrices; ++m)
        matrices += MatrixBytes(config, static_cast<PanelMatrix>(m));
      EXPECT_EQ(bytes, matrices);
    }
  }
}

TEST(ShardPlan, APartWithoutEndsHasNoHead) {
  const ShardPlan plan = MakeShardPlan(model::LayersOf(Config(8, 4, 32), 1, 2), 2);
  EXPECT_EQ(plan.lm_head_panels, 0u);
  EXPECT_EQ(plan.threads[1].of(0, PanelMatrix::kLmHead).count(), 0u);
}

// Each chunk of each panel has one owner, in order, whether panels are cut or not; whoever has
// chunks that are not a panel's first has each by itself.
void ExpectEachChunkOnce(const ShardPlan& plan, PanelMatrix matrix, size_t panels, size_t blocks) {
  const auto chunks = static_cast<uint32_t>(CeilDiv(blocks, kernels::kSumBlocks));
  uint32_t next = 0;  // panel * chunks + chunk
  for (const ThreadShard& shard : plan.threads) {
    const PanelRange& whole = shard.of(0, matrix);
    const auto part = [&](const PanelPart& of) {
      EXPECT_EQ(of.panel * chunks + of.chunks.begin, next);
      EXPECT_TRUE(of.first() ? of.chunks.count() > 0 && of.chunks.end < chunks
                             : of.chunks.count() == 1);
      next += of.chunks.count();
    };
    bool behind = false;  // the first part of a panel lies behind the whole ones
    for (const PanelPart& of : shard.parts[0]) {
      if (of.matrix != matrix) continue;
      if (of.first() && !behind) next += whole.count() * chunks;
      behind |= of.first();
      part(of);
    }
    if (!behind) next += whole.count() * chunks;
    EXPECT_TRUE(whole.count() == 0 || whole.end * chunks <= next);
  }
  EXPECT_EQ(next, panels * chunks);
}

TEST(ShardPlan, CutPanelsAreComputedOnceAndBalanceBetter) {
  model::ModelShape model_shape;
  model_shape.layers = 2;
  model_shape.dim = 2112;  // 66 blocks: 3 chunks, the last one of 2 blocks
  model_shape.ffn = 4000;  // 125 units of 66 blocks; down panels of 125 blocks, 4 chunks
  model_shape.heads = 16;
  model_shape.kv_heads = 4;
  model_shape.head_size = 80;  // O of 40 blocks: 2 chunks
  const auto config = model::ConfigOfShape(model_shape, "test");
  const LayerShape shape(config.kinds[0]);
  constexpr uint64_t kNever = UINT64_MAX;
  for (const size_t threads : {1, 2, 3, 7, 12, 40, 96, 200, 700}) {
    const ShardPlan whole = MakeShardPlan(config, threads, kNever);
    for (const ThreadShard& shard : whole.threads) EXPECT_TRUE(shard.parts[0].empty());
    const ShardPlan cut = MakeShardPlan(config, threads, 1);
    for (const ShardPlan* plan : {&whole, &cut}) {
      ExpectEachChunkOnce(*plan, PanelMatrix::kO, shape.o_panels, shape.q_blocks);
      ExpectEachChunkOnce(*plan, PanelMatrix::kFfn, shape.ffn_units, shape.dim_blocks);
      ExpectEachChunkOnce(*plan, PanelMatrix::kDown, shape.down_panels, shape.ffn_blocks);
      uint64_t bytes = 0;
      for (size_t t = 0; t < threads; ++t) bytes += plan->ThreadBytes(config, t);
      EXPECT_EQ(bytes, LayerBytes(config, 0, config.layers) +
                           plan->lm_head_panels * HeadPanel(config).bytes());
    }
    EXPECT_LE(cut.CriticalBytes(config), whole.CriticalBytes(config)) << threads;
    // What it gains is what was asked for, of each matrix that is cut.
    const ShardPlan usual = MakeShardPlan(config, threads);
    size_t matrices_cut = 0;
    for (const PanelMatrix matrix : {PanelMatrix::kO, PanelMatrix::kFfn, PanelMatrix::kDown}) {
      matrices_cut += std::ranges::any_of(usual.threads, [&](const ThreadShard& shard) {
        return std::ranges::any_of(shard.parts[0],
                                   [&](const PanelPart& part) { return part.matrix == matrix; });
      });
    }
    EXPECT_GE(whole.CriticalBytes(config) - usual.CriticalBytes(config),
              config.layers * matrices_cut * kSplitGainBytes)
        << threads;
  }
}

// 3 panels of 4 chunks on 2 threads: 6 chunks each instead of 8 and 4.
TEST(ShardPlan, ACutByHand) {
  model::ModelShape model_shape;
  model_shape.layers = 1;
  model_shape.dim = 48;
  model_shape.ffn = 4096;
  model_shape.heads = model_shape.kv_heads = 1;
  model_shape.head_size = 48;
  const auto config = model::ConfigOfShape(model_shape, "test");
  const ShardPlan plan = MakeShardPlan(config, 2);
  const auto &first = plan.threads[0], &second = plan.threads[1];
  EXPECT_EQ(first.of(0, PanelMatrix::kDown).begin, 0u);
  EXPECT_EQ(first.of(0, PanelMatrix::kDown).end, 1u);
  ASSERT_EQ(first.parts[0].size(), 1u);
  EXPECT_EQ(first.parts[0][0].panel, 1u);
  EXPECT_EQ(first.parts[0][0].chunks.begin, 0u);
  EXPECT_EQ(first.parts[0][0].chunks.end, 2u);
  EXPECT_EQ(second.of(0, PanelMatrix::kDown).begin, 2u);
  EXPECT_EQ(second.of(0, PanelMatrix::kDown).end, 3u);
  ASSERT_EQ(second.parts[0].size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(second.parts[0][i].panel, 1u);
    EXPECT_EQ(second.parts[0][i].chunks.begin, 2 + i);
    EXPECT_EQ(second.parts[0][i].chunks.end, 3 + i);
  }
  EXPECT_EQ(plan.ThreadBytes(config, 0) -
                plan.threads[0].of(0, PanelMatrix::kLmHead).count() * HeadPanel(config).bytes(),
            plan.ThreadBytes(config, 1) -
                plan.threads[1].of(0, PanelMatrix::kLmHead).count() * HeadPanel(config).bytes() +
                LayerPanels(config, 0).bytes(PanelMatrix::kQkv, first.of(0, PanelMatrix::kQkv)) -
                LayerPanels(config, 0).bytes(PanelMatrix::kQkv, second.of(0, PanelMatrix::kQkv)) +
                LayerPanels(config, 0).bytes(PanelMatrix::kO, first.of(0, PanelMatrix::kO)) -
                LayerPanels(config, 0).bytes(PanelMatrix::kO, second.of(0, PanelMatrix::kO)));
  EXPECT_GT(plan.Balance(config), MakeShardPlan(config, 2, UINT64_MAX).Balance(config));
}

// Counted by hand: a barrier follows each matrix, so one panel too many for one thread is waited
// for by all.
TEST(ShardPlan, BalanceIsWhatTheFullestThreadsLeave) {
  const auto config = Config(8, 4, 32);
  const LayerShape shape(config.kinds[0]);
  const LayerPanels panels(config, 0);  // all of one type
  const auto bytes = [&](PanelMatrix matrix) { return panels.of(matrix, 0).bytes(); };
  EXPECT_EQ(MakeShardPlan(config, 1).Balance(config), 1.0);
  const auto parts = [](size_t count, size_t threads) { return CeilDiv(count, threads); };
  for (const size_t threads : {2, 3, 5, 64}) {
    const ShardPlan plan = MakeShardPlan(config, threads);
    const uint64_t waited =
        config.layers * (parts(shape.qkv_panels, threads) * bytes(PanelMatrix::kQkv) +
                         parts(shape.o_panels, threads) * bytes(PanelMatrix::kO) +
                         parts(shape.ffn_units, threads) * panels.bytes(PanelMatrix::kFfn, {0, 1}) +
                         parts(shape.down_panels, threads) * bytes(PanelMatrix::kDown)) +
        parts(plan.lm_head_panels, threads) * HeadPanel(config).bytes();
    EXPECT_EQ(plan.CriticalBytes(config), waited) << threads;
    const uint64_t all =
        LayerBytes(config, 0, config.layers) + plan.lm_head_panels * HeadPanel(config).bytes();
    EXPECT_DOUBLE_EQ(plan.Balance(config),
                     static_cast<double>(all) / static_cast<double>(threads * waited));
  }
}

// Q4_K, with query, key and value heads of three formats in one layer: each panel's bytes are
// counted once, wherever a range begins.
TEST(ShardPlan, LayersOfSeveralTypes) {
  auto config = Config(8, 4, 32);
  config.dim = 256;
  config.kinds[0].sizes.ffn = 512;
  config.kinds[0] =
      model::MakeLayerSpec(model::FamilyOf("llama"), {.sizes = config.kinds[0].sizes}, 1e-5f, {});
  using model::TensorRole;
  using model::TensorType;
  config.types.layers.resize(config.layers);
  for (auto& types : config.types.layers) types.fill(TensorType::kQ4_K);
  const uint64_t all_4_bit = LayerBytes(config, 0, 1);
  EXPECT_EQ(all_4_bit * 2, LayerBytes(config, 0, 2));
  const auto type = [&](TensorRole role) -> TensorType& {
    return config.types.layers[1][static_cast<size_t>(role)];
  };
  type(TensorRole::kK) = TensorType::kQ4_0;
  type(TensorRole::kV) = TensorType::kQ3_K;  // as Q8_0
  type(TensorRole::kUp) = TensorType::kQ4_0;
  const LayerPanels panels(config, 1);
  EXPECT_TRUE(panels.mixed());
  EXPECT_FALSE(LayerPanels(config, 0).mixed());
  // A group: 2 query heads, a key head and a value head of 32 rows each.
  const std::array expected = {&kernels::kQ4KPanel, &kernels::kQ4KPanel,  &kernels::kQ4KPanel,
                               &kernels::kQ4KPanel, &kernels::kQ4_0Panel, &kernels::kQ4_0Panel,
                               &kernels::kQ8Panel,  &kernels::kQ8Panel};
  uint64_t sum = 0;
  for (uint32_t p = 0; p < 4 * expected.size(); ++p) {
    const kernels::PanelFormat& format = *expected[p % expected.size()];
    EXPECT_EQ(panels.of(PanelMatrix::kQkv, p).format.type, format.type) << p;
    EXPECT_EQ(panels.bytes(PanelMatrix::kQkv, {0, p}), sum) << p;
    EXPECT_EQ(panels.bytes(PanelMatrix::kQkv, {p, p + 1}), format.bytes(8)) << p;
    sum += format.bytes(8);
  }
  EXPECT_EQ(panels.of(PanelMatrix::kFfn, 0).format.type, TensorType::kQ8_0) << "gate and up differ";
  EXPECT_EQ(panels.of(PanelMatrix::kDown, 0).format.type, TensorType::kQ4_K);
  EXPECT_GT(LayerBytes(config, 1, 1), all_4_bit);
  for (const size_t threads : {1, 3, 7}) {
    const ShardPlan plan = MakeShardPlan(config, threads);
    uint64_t bytes = 0;
    for (size_t t = 0; t < threads; ++t) bytes += plan.ThreadBytes(config, t);
    EXPECT_EQ(bytes, LayerBytes(config, 0, config.layers) +
                         plan.lm_head_panels * HeadPanel(config).bytes());
    EXPECT_LE(plan.Balance(config), 1.0);
  }
  // Heads that are no whole panels: one format for all rows.
  config.kinds[0].sizes.head_size = 40;
  EXPECT_EQ(LayerPanels(config, 1).of(PanelMatrix::kQkv, 0).format.type, TensorType::kQ8_0);
}

TEST(ShardPlan, BetterThreads) {
  const auto config = Config(8, 4, 32);
  for (const size_t threads : {1, 2, 3, 7, 9, 31, 96}) {
    const BetterThreads better = FindBetterThreads(config, threads);
    const auto critical = [&](size_t n) { return MakeShardPlan(config, n).CriticalBytes(config); };
    ASSERT_GE(better.fewest_as_fast, 1u);
    ASSERT_LE(better.fewest_as_fast, threads);
    EXPECT_EQ(critical(better.fewest_as_fast), critical(threads)) << threads;
    if (better.fewest_as_fast > 1) {
      EXPECT_GT(critical(better.fewest_as_fast - 1), critical(threads));
    }
    if (better.next_balanced == 0) continue;
    EXPECT_GT(better.next_balanced, threads);
    EXPECT_GE(MakeShardPlan(config, better.next_balanced).Balance(config), kGoodBalance);
    for (size_t n = threads + 1; n < better.next_balanced; ++n)
      EXPECT_LT(MakeShardPlan(config, n).Balance(config), kGoodBalance) << n;
  }
}

TEST(ReadBytes, OfExpertsThoseThatRowsChoose) {
  const model::ExpertSpec experts{.count = 64, .used = 2};
  EXPECT_NEAR(ActiveExperts(experts, 1), 2, 1e-9);
  EXPECT_NEAR(ActiveExperts(experts, 2), 2 + 2 * 62 / 64.0, 1e-9);
  EXPECT_NEAR(ActiveExperts(experts, 100000), 64, 1e-9);
  const model::ModelConfig config =
      model::ConfigOfShape(model::ShapeByName("bench-moe-440m"), "moe");
  const auto all = static_cast<double>(LayerBytes(config, 0, config.layers));
  const auto of_experts = static_cast<double>(MatrixBytes(config, PanelMatrix::kFfn) +
                                              MatrixBytes(config, PanelMatrix::kDown));
  constexpr double kRouters = 8 * 64 * 1024 * 4;  // layers, experts, dim, float32
  EXPECT_EQ(RouterBytes(config, 0, config.layers), kRouters);
  EXPECT_NEAR(LayerReadBytes(config, 0, config.layers, 1), all - of_experts * 62 / 64 + kRouters,
              1);
  EXPECT_NEAR(LayerReadBytes(config, 0, config.layers, 100000), all + kRouters, 1);
  EXPECT_NEAR(ReadBytes(config, PanelMatrix::kQkv, 1),
              static_cast<double>(MatrixBytes(config, PanelMatrix::kQkv)), 1e-9);
  // All threads have the same number of bytes of experts, or nearly.
  for (const size_t threads : {2, 3, 16})
    EXPECT_GT(MakeShardPlan(config, threads).Balance(config), 0.94) << threads;
  const model::ModelConfig dense = model::ConfigOfShape(model::ShapeByName("bench-24m"), "dense");
  EXPECT_EQ(LayerReadBytes(dense, 0, 2, 1), static_cast<double>(LayerBytes(dense, 0, 2)));
}

TEST(ShardPlan, WhicheverExpertsAreChosenThreadsHaveWork) {
  const auto fullest = [](const char* shape, size_t threads, size_t rows) {
    const model::ModelConfig config = model::ConfigOfShape(model::ShapeByName(shape), "moe");
    return FullestOfExperts(config, MakeShardPlan(config, threads), rows);
  };
  for (const auto* shape : {"qwen3-30b-a3b", "mixtral-8x7b"}) {
    EXPECT_LE(fullest(shape, 16, 1), 1.1) << shape;
    EXPECT_LE(fullest(shape, 16, 32), 1.02) << shape;
  }
  EXPECT_EQ(fullest("bench-24m", 16, 1), 1);  // no experts
  // 8 units of each of 64 experts over 16 threads: half of these have one of an expert, and both
  // experts of a row are the same half's as often as not.
  EXPECT_NEAR(fullest("bench-moe-440m", 16, 1), 1.5, 0.1);
  EXPECT_NEAR(fullest("bench-moe-440m", 2, 1), 1, 1e-9);
}

}  // namespace
}  // namespace larder::weight_node
