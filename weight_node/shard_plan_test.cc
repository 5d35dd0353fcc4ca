// Every panel has exactly one owner, and the shares are as equal as whole panels allow.
#include "weight_node/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

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
void ExpectWhole(const ShardPlan& plan, PanelRange ThreadShard::*range, size_t count) {
  uint32_t next = 0, least = UINT32_MAX, most = 0;
  for (const ThreadShard& shard : plan.threads) {
    EXPECT_EQ((shard.*range).begin, next);
    next = (shard.*range).end;
    least = std::min(least, (shard.*range).count());
    most = std::max(most, (shard.*range).count());
  }
  EXPECT_EQ(next, count);
  EXPECT_LE(most - least, 1u);
}

TEST(ShardPlan, EachPanelHasOneOwner) {
  for (const auto& config : {Config(8, 4, 32), Config(6, 1, 64), Config(4, 4, 40)}) {
    const LayerShape shape(config);
    for (const size_t threads : {1, 2, 3, 7, 96}) {
      const ShardPlan plan = MakeShardPlan(config, threads);
      ASSERT_EQ(plan.threads.size(), threads);
      ExpectWhole(plan, &ThreadShard::qkv, shape.qkv_panels);
      ExpectWhole(plan, &ThreadShard::o, shape.o_panels);
      ExpectWhole(plan, &ThreadShard::ffn_units, shape.ffn_units);
      ExpectWhole(plan, &ThreadShard::down, shape.down_panels);
      ExpectWhole(plan, &ThreadShard::head, plan.head_panels);
      uint64_t bytes = 0;
      for (size_t t = 0; t < threads; ++t) bytes += plan.ThreadBytes(config, t);
      EXPECT_EQ(bytes, config.layers * shape.weight_bytes() + plan.head_panels * HeadPanel(config).bytes());
    }
  }
}

TEST(ShardPlan, APartWithoutEndsHasNoHead) {
  const ShardPlan plan = MakeShardPlan(model::LayersOf(Config(8, 4, 32), 1, 2), 2);
  EXPECT_EQ(plan.head_panels, 0u);
  EXPECT_EQ(plan.threads[1].head.count(), 0u);
}

}  // namespace
}  // namespace larder::weight_node
