#include "weight_node/shard_plan.h"

#include <fmt/format.h>

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

uint64_t ShardPlan::MostThreadBytes(const model::ModelConfig& config) const {
  uint64_t most = 0;
  for (size_t t = 0; t < threads.size(); ++t) most = std::max(most, ThreadBytes(config, t));
  return most;
}

uint64_t ShardPlan::CriticalBytes(const model::ModelConfig& config) const {
  const LayerShape shape(config);
  const auto fullest = [&](PanelRange ThreadShard::*range) {
    uint64_t most = 0;
    for (const ThreadShard& shard : threads) most = std::max<uint64_t>(most, (shard.*range).count());
    return most;
  };
  const uint64_t layer = fullest(&ThreadShard::qkv) * shape.qkv_panel.bytes() +
                         fullest(&ThreadShard::o) * shape.o_panel.bytes() +
                         fullest(&ThreadShard::ffn_units) * shape.unit_bytes() +
                         fullest(&ThreadShard::down) * shape.down_panel.bytes();
  return config.layers * layer + fullest(&ThreadShard::head) * HeadPanel(config).bytes();
}

double ShardPlan::Balance(const model::ModelConfig& config) const {
  const uint64_t bytes =
      config.layers * LayerShape(config).weight_bytes() + head_panels * HeadPanel(config).bytes();
  return static_cast<double>(bytes) / static_cast<double>(threads.size() * CriticalBytes(config));
}

BetterThreads FindBetterThreads(const model::ModelConfig& config, size_t threads) {
  BetterThreads better{.fewest_as_fast = threads, .next_balanced = 0};
  const uint64_t critical = MakeShardPlan(config, threads).CriticalBytes(config);
  while (better.fewest_as_fast > 1 &&
         MakeShardPlan(config, better.fewest_as_fast - 1).CriticalBytes(config) <= critical)
    --better.fewest_as_fast;
  for (size_t n = threads + 1; n <= 4 * threads && better.next_balanced == 0; ++n) {
    if (MakeShardPlan(config, n).Balance(config) >= kGoodBalance) better.next_balanced = n;
  }
  return better;
}

std::string BalanceText(const model::ModelConfig& config, size_t threads) {
  const double balance = MakeShardPlan(config, threads).Balance(config);
  const BetterThreads better = FindBetterThreads(config, threads);
  std::string out = fmt::format("{:.1f} %: the fullest thread of each matrix is waited for", 100 * balance);
  if (better.fewest_as_fast < threads) out += fmt::format("; {} threads are as fast", better.fewest_as_fast);
  if (balance < kGoodBalance && better.next_balanced != 0)
    out += fmt::format("; {} are the next good number", better.next_balanced);
  return out;
}

}  // namespace larder::weight_node
