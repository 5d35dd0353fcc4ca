#include "pipeline/stage/packed_weights.h"

#include <optional>

#include "base/check.h"
#include "base/socket_counters.h"
#include "pipeline/stage/exchange.h"
#include "topology/probe.h"
#include "topology/read_kernels.h"

namespace larder::pipeline::inline stage {
namespace {

constexpr double kResidencyBudgetS = 0.3;

}  // namespace

PackedWeights::PackedWeights(const StagePlan& plan, const StageOptions& options)
    : plan_(plan), logit_row_(plan.options.capacity.max_batch_tokens) {
  // Bandwidths are measured first, since the pool's waiting threads would occupy the same cores.
  if (options.baseline) residency_.baseline = options.baseline(plan_);
  pool_ = std::make_unique<threadpool::Pool>(PoolOf(plan.threads, options.wait));
}

void PackedWeights::Load(const model::GgufFile& file, const StageOptions& options,
                         const weight_node::AttentionIoRows* shared_io) {
  weight_node::WeightNodeOptions weights{
      .isa = plan_.options.isa,
      .tuning = plan_.options.tuning.value(),
      .few_rows = plan_.options.few_rows,
      .max_batch_tokens = plan_.options.capacity.max_batch_tokens,
      .slots = plan_.options.capacity.slots,
      .logit_rows = LogitRows(plan_.config, plan_.options.capacity.max_batch_tokens),
      .node_of_thread = NodesOf(plan_.threads),
      .shared_io = shared_io,
      .own_waiters = options.wait.mode,
      .halves = plan_.separated() ? kHalves : 1,
      .panels = std::nullopt,
      .expert_shares = plan_.expert_shares};
  weights_ = std::make_unique<weight_node::WeightNode>(plan_.config, plan_.shards, weights);
  struct Context {
    weight_node::WeightNode& weights;
    const model::GgufFile& file;
    weight_node::PackedByteCounter progress;
  } context{*weights_, file, {}};
  context.progress.all_bytes = plan_.weight_bytes + plan_.embedding_bytes;
  context.progress.report = options.progress;
  pool_->ForEach(
      [](void* raw, int thread) {
        auto& c = *static_cast<Context*>(raw);
        c.weights.Pack(c.file, static_cast<size_t>(thread), c.progress);
      },
      &context);
  if (options.progress) options.progress(context.progress.all_bytes, context.progress.all_bytes);
  weights_->Finish();
  LiveResidency::Weights parts(plan_.threads.size());
  for (size_t t = 0; t < parts.size(); ++t) {
    const weight_node::Shards& shards = weights_->shards(t);
    for (size_t layer = 0; layer < plan_.config.layers; ++layer)
      parts[t].push_back(shards.LayerWeights(layer));
    parts[t].push_back(shards.EndsWeights());
  }
  live_ = std::make_unique<LiveResidency>(parts);
}

void PackedWeights::Warm(const StageOptions& options) {
  live_->Calibrate(*pool_, plan_);
  if (options.baseline) {
    residency_.shards = ProbeResidency(kResidencyBudgetS);
    for (ShardResidency& shard : residency_.shards)
      shard.resident_share = ResidentShare(shard.reread_gbps, residency_.baseline);
  }
  pool_->Call(
      [](void* weights, int thread) {
        const auto bytes = static_cast<weight_node::WeightNode*>(weights)
                               ->shards(static_cast<size_t>(thread))
                               .weights();
        topology::ReadPatterns().front().read(bytes.data(), bytes.size());
      },
      weights_.get());
}

uint64_t PackedWeights::live_resident_bytes() const {
  const std::optional<double> share = live_->estimate().share();
  return share ? static_cast<uint64_t>(*share * static_cast<double>(plan_.weight_bytes))
               : SocketCounters::kNotMeasured;
}

std::vector<ShardResidency> PackedWeights::ProbeResidency(double budget_s) {
  struct Context {
    PackedWeights* packed;
    double budget_s;
    std::vector<ShardResidency> result;
  } context{this, budget_s, std::vector<ShardResidency>(plan_.threads.size())};
  pool_->ForEach(
      [](void* raw, int thread) {
        auto& c = *static_cast<Context*>(raw);
        const auto bytes = c.packed->weights_->shards(static_cast<size_t>(thread)).weights();
        c.result[static_cast<size_t>(thread)] = {thread, bytes.size(),
                                                 topology::ReadBandwidthGbps(bytes, c.budget_s)};
      },
      &context);
  return context.result;
}

}  // namespace larder::pipeline::stage
