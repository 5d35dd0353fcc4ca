#include "pipeline/chain/chain_plan.h"

#include "base/error.h"
#include "base/memory.h"
#include "kernels/formats/kv_page.h"
#include "pipeline/plan/stage_plan.h"

namespace larder::pipeline::inline chain {

StageFrameShape ChainPlan::frame_shape() const {
  return {.plan_hash = plan_hash,
          .rows = {.capacity = capacity,
                   .slot_chunks = CeilDiv(capacity.context, kernels::kChunkPositions),
                   .slot_ends = slot_ends,
                   .chunk_ends = chunk_ends},
          .max_logit_rows = LogitRows(config, capacity.max_batch_tokens),
          .dim = config.dim,
          .stages = stages.size()};
}

rdma::LinkShape ChainPlan::link_shape() const {
  // One slot more than there are micro-batches in flight, for the stop message.
  return {.frame_bytes = frame_shape().bytes(), .slots = capacity.max_in_flight + 1};
}

void ChainPlan::DivideLike(const StagePlan& plan) {
  if (!slot_ends.empty()) return;
  chunk_ends = {plan.kv_chunks};
  if (!plan.separated()) return;
  chunk_ends.clear();
  for (const PlanAttentionSocket& socket : plan.attention) {
    slot_ends.push_back(socket.end_slot());
    chunk_ends.push_back(socket.first_chunk + socket.kv_chunks);
  }
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
