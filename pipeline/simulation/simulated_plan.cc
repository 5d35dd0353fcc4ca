#include "pipeline/simulation/simulated_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pipeline/chain/chain_plan.h"
#include "pipeline/engine/engine.h"

namespace larder::pipeline::inline simulation {
namespace {

uint64_t Nanoseconds(double us) { return static_cast<uint64_t>(std::llround(us * 1e3)); }

}  // namespace

SimulatedPlan SimulatedOf(const Plan& plan) {
  ChainPlan division;
  for (const PlacedStage& stage : plan.stages) division.DivideLike(stage.plan);
  SimulatedPlan of = {
      .limits = {.capacity = plan.capacity,
                 .vocab = plan.config.vocab,
                 .max_logits = LogitRows(plan.config, plan.capacity.max_batch_tokens),
                 .attention_slot_ends = division.slot_ends},
      .chunks = {}};
  of.chunks = KvChunksOf(plan.config, of.limits, division.chunk_ends);
  return of;
}

PlanTimes::PlanTimes(const Plan& plan) : prediction_(plan.prediction) {
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    Stage& stage = stages_.emplace_back(Stage{.whole = prediction_.stages[i], .socket_shares = {}});
    size_t cores = 0;
    for (const PlanAttentionSocket& socket : plan.stages[i].plan.attention)
      cores += socket.threads.size();
    for (const PlanAttentionSocket& socket : plan.stages[i].plan.attention)
      stage.socket_shares.push_back(static_cast<double>(socket.threads.size()) /
                                    static_cast<double>(cores));
  }
}

uint64_t PlanTimes::StageNs(size_t i, const StepLoad& load) {
  const Stage& of = stages_[i];
  double positions = 0;  // if all cores for KV have as much to do as the busiest ones
  if (of.socket_shares.empty()) {
    positions = static_cast<double>(
        std::accumulate(load.positions.begin(), load.positions.end(), uint64_t{0}));
  }
  for (size_t s = 0; s < of.socket_shares.size(); ++s)
    positions = std::max(positions, static_cast<double>(load.positions[s]) / of.socket_shares[s]);
  const auto context = static_cast<double>(prediction_.capacity.context);
  PredictedStage stage =
      Prediction::WithContext(of.whole, positions / (context * static_cast<double>(load.rows)));
  // The prediction takes each row for a sequence. Whether KV is in L3 depends on the sequences.
  const double held = static_cast<double>(of.whole.kv_bytes) *
                      (static_cast<double>(load.held) / context) *
                      static_cast<double>(stage.layers * prediction_.capacity.max_in_flight);
  stage.kv_room_bytes = held <= static_cast<double>(stage.kv_room_bytes) ? UINT64_MAX : 0;
  return Nanoseconds(prediction_.Times(stage, load.rows).stage_us);
}

ServiceTimes::Link PlanTimes::LinkOf(size_t rows) {
  if (prediction_.links == 0) return {};
  const double latency_us = prediction_.speeds.link_latency_us;
  return {.busy_ns = Nanoseconds(prediction_.LinkUs(rows) - latency_us),
          .latency_ns = Nanoseconds(latency_us)};
}

uint64_t PlanTimes::ServingNs(const StepLoad& load) {
  const double head_us =
      load.wanted == 0 ? 0 : prediction_.Times(prediction_.stages.back(), load.wanted).stage_us;
  return Nanoseconds(prediction_.speeds.step_us + head_us);
}

}  // namespace larder::pipeline::simulation
