#include "weight_node/shard_plan.h"

#include <algorithm>

#include "threadpool/share.h"

namespace larder::weight_node {

using kernels::kBlock;
using kernels::kPanelRows;
using model::TensorRole;

namespace {

size_t BlocksOf(const model::ModelConfig& config, TensorRole role) {
  return CeilDiv(config.layer.tensor(role).cols, kBlock);
}
size_t PanelsOf(const model::ModelConfig& config, TensorRole role) {
  return CeilDiv(config.layer.tensor(role).rows, kPanelRows);
}
size_t RowsOfGroup(const model::ModelConfig& config) {
  size_t rows = 0;
  for (const TensorRole role : {TensorRole::kQ, TensorRole::kK, TensorRole::kV})
    rows += config.layer.tensor(role).rows;
  return rows / config.kv_heads;
}

}  // namespace

LayerShape::LayerShape(const model::ModelConfig& config)
    : dim_blocks(BlocksOf(config, TensorRole::kQ)),
      q_blocks(BlocksOf(config, TensorRole::kO)),
      ffn_blocks(BlocksOf(config, TensorRole::kDown)),
      group_rows(RowsOfGroup(config)),
      group_panels(CeilDiv(group_rows, kPanelRows)),
      qkv_panels(config.kv_heads * group_panels),
      o_panels(PanelsOf(config, TensorRole::kO)),
      ffn_units(ffn_blocks),
      down_panels(PanelsOf(config, TensorRole::kDown)),
      qkv_panel{dim_blocks, kernels::kQ8Panel},
      o_panel{q_blocks, kernels::kQ8Panel},
      ffn_panel{dim_blocks, kernels::kQ8Panel},
      down_panel{ffn_blocks, kernels::kQ8Panel} {}

uint64_t LayerShape::weight_bytes() const {
  return qkv_panels * qkv_panel.bytes() + o_panels * o_panel.bytes() + ffn_units * unit_bytes() +
         down_panels * down_panel.bytes();
}

kernels::PanelShape HeadPanel(const model::ModelConfig& config) {
  return {CeilDiv(config.dim, kBlock), kernels::kQ8Panel};
}

ShardPlan MakeShardPlan(const model::ModelConfig& config, size_t threads) {
  const LayerShape shape(config);
  ShardPlan plan;
  plan.head_panels = config.ends ? CeilDiv(config.vocab, kPanelRows) : 0;
  for (size_t t = 0; t < threads; ++t) {
    auto range = [&](size_t count) {
      return threadpool::ShareOf(static_cast<uint32_t>(count), static_cast<uint32_t>(t),
                                 static_cast<uint32_t>(threads));
    };
    plan.threads.push_back({.qkv = range(shape.qkv_panels),
                            .o = range(shape.o_panels),
                            .ffn_units = range(shape.ffn_units),
                            .down = range(shape.down_panels),
                            .head = range(plan.head_panels)});
  }
  return plan;
}

const PanelRange& ThreadShard::of(PanelMatrix matrix) const {
  switch (matrix) {
    case PanelMatrix::kQkv:
      return qkv;
    case PanelMatrix::kO:
      return o;
    case PanelMatrix::kFfn:
      return ffn_units;
    case PanelMatrix::kDown:
      return down;
    case PanelMatrix::kHead:
      break;
  }
  return head;
}

uint64_t ShardPlan::ThreadBytes(const model::ModelConfig& config, size_t thread) const {
  const LayerShape shape(config);
  const ThreadShard& shard = threads[thread];
  const uint64_t layer =
      shard.qkv.count() * shape.qkv_panel.bytes() + shard.o.count() * shape.o_panel.bytes() +
      shard.ffn_units.count() * shape.unit_bytes() + shard.down.count() * shape.down_panel.bytes();
  return config.layers * layer + shard.head.count() * HeadPanel(config).bytes();
}

}  // namespace larder::weight_node
