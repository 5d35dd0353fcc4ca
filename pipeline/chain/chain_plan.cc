#include "pipeline/chain/chain_plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/memory.h"
#include "pipeline/plan/stage_plan.h"
#include "weight_node/routing/expert_counters.h"

namespace larder::pipeline::inline chain {

StageFrameShape ChainPlan::frame_shape() const {
  std::vector<size_t> expert_numbers;
  for (const ChainStage& stage : stages)
    expert_numbers.push_back(weight_node::ExpertCounters(StageConfig(stage), 0).numbers());
  if (std::ranges::all_of(expert_numbers, [](size_t n) { return n == 0; })) expert_numbers.clear();
  return {.plan_hash = plan_hash,
          .rows = {.capacity = capacity, .slot_ends = slot_ends, .chunk_ends = chunk_ends},
          .max_logit_rows = LogitRows(config, capacity.max_batch_tokens),
          .dim = config.dim,
          .inputs = config.all_inputs(),
          .stages = stages.size(),
          .expert_numbers = std::move(expert_numbers)};
}

model::ModelConfig ChainPlan::StageConfig(const ChainStage& stage) const {
  return model::LayersOf(config, stage.first_layer, stage.layers);
}

rdma::LinkShape ChainPlan::link_shape() const {
  // One slot more than there are micro-batches in flight, for the stop message.
  return {.frame_bytes = frame_shape().bytes(), .slots = capacity.max_in_flight + 1};
}

void ChainPlan::DivideLike(const StagePlan& plan) {
  if (!slot_ends.empty()) return;
  chunk_ends.resize(plan.kv_pools.size());
  std::partial_sum(plan.kv_pools.begin(), plan.kv_pools.end(), chunk_ends.begin());
  for (const PlanAttentionSocket& socket : plan.attention) slot_ends.push_back(socket.end_slot());
}

std::vector<size_t> ChainPlan::socket_chunk_ends() const {
  const size_t sockets = std::max<size_t>(slot_ends.size(), 1),
               classes = chunk_ends.size() / sockets;
  std::vector<size_t> ends;
  for (size_t i = 0; i < sockets; ++i) ends.push_back(chunk_ends[(i + 1) * classes - 1]);
  return ends;
}

void ChainPlan::CheckStage(const StagePlan& plan) const {
  if (plan.options.capacity.slots != capacity.slots) {
    throw Error(
        "stage with {} slots in a chain of {}: all sockets that hold KV need the same (key slots)",
        plan.options.capacity.slots, capacity.slots);
  }
  if (plan.kv_chunks != chunk_ends.back()) {
    throw Error(
        "stage with {} KV chunks in a chain of {}: all sockets that hold KV need the same (key "
        "kv_tokens)",
        plan.kv_chunks, chunk_ends.back());
  }
  if (!plan.separated()) return;
  ChainPlan own;
  own.DivideLike(plan);
  if (own.slot_ends != slot_ends || own.chunk_ends != chunk_ends) {
    throw Error(
        "the stage of attention socket '{}' divides the slots among its attention sockets "
        "differently from the other stages; expected as many attention sockets with the same slots "
        "(key slots) in each stage",
        plan.attention.front().name);
  }
}

}  // namespace larder::pipeline::chain
