// What follows from the model's shape and a Plan's stages: sizes, hash, prediction, and the Plan
// for sockets that do not exist yet.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "attention_node/kv_region.h"
#include "base/error.h"
#include "kernels/formats/panel_format.h"
#include "pipeline/plan/identity.h"
#include "pipeline/plan/layer_split.h"
#include "pipeline/plan/plan.h"
#include "pipeline/plan/stage_plan.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline plan {
namespace {

constexpr size_t kUniformFrameRows = 64;  // the smallest that a Plan chooses
constexpr size_t kBatches[] = {1, 2, 4, 8, 16, 32};

uint64_t KvBytes(const model::ModelConfig& config, size_t first, size_t layers, size_t context) {
  return attention_node::KvShape(model::LayersOf(config, first, layers), 1, context).slot_bytes();
}

}  // namespace

uint64_t LayerBytes(const model::ModelConfig& config) {
  return CeilDiv(weight_node::LayerBytes(config, 0, config.layers),
                 std::max<size_t>(config.layers, 1));
}

uint64_t LmHeadBytes(const model::ModelConfig& config) {
  return CeilDiv(config.vocab, kernels::kPanelRows) * weight_node::HeadPanel(config).bytes();
}

uint64_t EmbeddingBytes(const model::ModelConfig& config) {
  return weight_node::EmbeddingBytes(config);
}

Plan PlanUniformCluster(const model::ModelConfig& config, const SocketShape& socket,
                        const PlanOptions& options, const Speeds& speeds) {
  if (socket.cores == 0 || socket.l3_bytes == 0)
    throw Error("plan: a socket of {} cores and {} bytes of L3; expected at least one of each",
                socket.cores, socket.l3_bytes);
  Plan plan;
  plan.config = config;
  plan.context =
      options.context != 0 ? options.context : attention_node::KvShape::DefaultContext(config);
  plan.max_batch_tokens =
      options.max_batch_tokens != 0 ? options.max_batch_tokens : kUniformFrameRows;
  const auto budget =
      static_cast<uint64_t>(static_cast<double>(socket.l3_bytes) * options.l3_fraction);
  const uint64_t layer_bytes = LayerBytes(config);
  SocketCount count = CountSockets(config.layers, layer_bytes, budget);
  std::vector<size_t> share;
  const auto fits = [&] {  // layers may differ in their types, and so in their bytes
    size_t first = 0;
    return std::ranges::all_of(share, [&](size_t layers) {
      const uint64_t bytes = weight_node::LayerBytes(config, first, layers);
      first += layers;
      return bytes <= budget || layers == 1;
    });
  };
  do {
    share = ShareLayers(config.layers, std::vector<uint64_t>(count.sockets, socket.cores));
  } while (!fits() && count.sockets++ < config.layers);
  for (size_t i = 0, next = 0; i < share.size(); next += share[i++]) {
    PlacedStage stage{.socket = fmt::format("stage-{}", i),
                      .first_layer = next,
                      .layers = share[i],
                      .cores = socket.cores,
                      .weight_bytes = weight_node::LayerBytes(config, next, share[i]),
                      .l3_bytes = socket.l3_bytes,
                      .l3_budget_bytes = budget,
                      .kv_slot_bytes = KvBytes(config, next, share[i], plan.context)};
    stage.resident = stage.weight_bytes <= budget;
    stage.kv_room_bytes = socket.l3_bytes - std::min(socket.l3_bytes, stage.weight_bytes);
    plan.stages.push_back(std::move(stage));
  }
  plan.serving_socket = "serving";
  plan.serving_cores = socket.cores;
  plan.lm_head_bytes = LmHeadBytes(config);
  plan.embedding_bytes = EmbeddingBytes(config);
  plan.serving_resident = plan.lm_head_bytes <= budget;
  plan.max_in_flight = MaxInFlight(plan.stages.size());
  plan.slots = std::max(options.slots, plan.max_in_flight);
  if (!plan.stages[0].resident) {
    plan.notes.push_back(fmt::format(
        "one layer has {:.1f} MB of packed weights, {:.1f} MB more than the budget of a socket "
        "({:.1f} MB, {:.0f} % of its L3); {}",
        static_cast<double>(layer_bytes) * 1e-6, static_cast<double>(layer_bytes - budget) * 1e-6,
        static_cast<double>(budget) * 1e-6, 100 * options.l3_fraction,
        layer_bytes <= socket.l3_bytes
            ? "it fits the L3 with less room for the rest"
            : "it streams from memory: a layer is never split over sockets"));
  }
  Predict(plan, speeds);
  return plan;
}

void Predict(Plan& plan, const Speeds& speeds) {
  Prediction& p = plan.prediction;
  p = {.speeds = speeds,
       .context = plan.context,
       .max_in_flight = plan.max_in_flight,
       .row_bytes = plan.config.dim * sizeof(float),
       .links = plan.single() ? 0 : plan.stages.size() + 1};
  const model::ModelConfig& c = plan.config;
  for (const PlacedStage& stage : plan.stages) {
    // Bytes of a layer: the mean, rounded up, if layers differ.
    const model::ModelConfig here = model::LayersOf(c, stage.first_layer, stage.layers);
    const uint64_t layer_bytes =
        CeilDiv(weight_node::LayerBytes(c, stage.first_layer, stage.layers), stage.layers);
    const uint64_t layer_parameters =
        CeilDiv(here.Sum(&model::LayerSpec::matrix_parameters), stage.layers);
    p.stages.push_back(
        {.name = stage.socket,
         .layers = stage.layers,
         .cores = stage.cores,
         .weight_bytes = layer_bytes,
         .weight_parameters = layer_parameters,
         // a layer that exceeds its budget but not the cache is still read from it
         .weights_in_l3 =
             stage.resident || (stage.l3_bytes >= stage.weight_bytes && stage.layers == 1),
         .kv_bytes =
             CeilDiv(KvBytes(c, stage.first_layer, stage.layers, plan.context), stage.layers),
         .kv_cores = stage.attention.empty() ? stage.cores : stage.attention_cores,
         .kv_room_bytes = stage.kv_room_bytes});
  }
  const PlacedStage& first = plan.stages.front();
  // A process that joins to serve is assumed to be as fast as the first stage's socket.
  const bool beside = plan.serving_cores == 0;
  p.stages.push_back({.name = "serving",
                      .cores = beside ? first.cores : plan.serving_cores,
                      .weight_bytes = plan.lm_head_bytes,
                      .weight_parameters = c.vocab * c.dim,
                      .weights_in_l3 = plan.serving_resident ||
                                       (beside && first.weight_bytes + plan.lm_head_bytes <=
                                                      first.l3_budget_bytes)});
  for (const size_t batch : kBatches) p.points.push_back(p.Point(batch));
  const double serving_us = p.Times(p.stages.back(), 1).stage_us;
  const bool slowest = std::all_of(
      p.stages.begin(), p.stages.end(),
      [&](const PredictedStage& stage) { return p.Times(stage, 1).stage_us <= serving_us; });
  if (!plan.single() && slowest && !p.stages.back().weights_in_l3) {
    plan.notes.push_back(fmt::format(
        "lm_head ({:.1f} MB, read from memory) takes longer than a stage; a serving socket with "
        "that much L3 to spare would be faster",
        static_cast<double>(plan.lm_head_bytes) * 1e-6));
  }
}

bool Plan::resident() const {
  return std::all_of(stages.begin(), stages.end(),
                     [](const PlacedStage& stage) { return stage.resident; });
}

uint64_t Plan::weight_bytes() const {
  uint64_t bytes = single() ? 0 : lm_head_bytes;  // the single stage's own figure includes it
  for (const PlacedStage& stage : stages) bytes += stage.weight_bytes;
  return bytes;
}

uint64_t Plan::kv_slot_bytes() const {
  uint64_t bytes = 0;
  for (const PlacedStage& stage : stages) bytes += stage.kv_slot_bytes;
  return bytes;
}

uint64_t Plan::kv_bytes() const {
  uint64_t bytes = 0;
  for (const PlacedStage& stage : stages)  // without a plan of its own where sockets do not exist
                                           // yet
    bytes += stage.plan.kv_chunks > 0 ? stage.plan.kv_bytes : slots * stage.kv_slot_bytes;
  return bytes;
}

const PlacedStage& Plan::stage_of_socket(std::string_view socket) const {
  std::string names;
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto& attention = stages[i].attention;
    if (stages[i].socket == socket ||
        std::find(attention.begin(), attention.end(), socket) != attention.end())
      return stages[i];
    names += (names.empty() ? "" : ", ") + stages[i].socket;
    for (const std::string& name : attention) names += ", " + name;
  }
  for (const auto& of_server : sockets) {
    for (const ResolvedSocket& other : of_server) {
      if (std::find(other.joined.begin(), other.joined.end(), socket) == other.joined.end())
        continue;
      throw Error(
          "socket '{}' has role auto and its cores became part of socket '{}' ({}); expected no "
          "process for it, or role attention in the manifest",
          socket, other.name, other.reason);
    }
  }
  throw Error("socket '{}' belongs to no stage of cluster '{}'; the stages' sockets are: {}",
              socket, cluster, names);
}

AttentionId PlacedStage::attention_id(std::string_view name) const {
  const auto found = std::find(attention.begin(), attention.end(), name);
  if (found != attention.end()) return AttentionId(static_cast<int32_t>(found - attention.begin()));
  std::string names;
  for (const std::string& one : attention)
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", one);
  throw Error("socket '{}' is not an attention socket of socket '{}', which has: {}", name, socket,
              names.empty() ? "none" : names);
}

uint64_t Plan::identity() const { return IdentityOf(fingerprint, config); }

uint64_t Plan::hash() const {
  nlohmann::json key = {identity(),    cluster,          context,       slots,         kv_tokens,
                        cached_tokens, max_batch_tokens, max_in_flight, serving_socket};
  for (const PlacedStage& stage : stages) {
    key.push_back({stage.server, stage.socket, stage.attention, stage.first_layer, stage.layers,
                   stage.plan.options.few_rows});
    for (const PlanAttentionSocket& socket : stage.plan.attention) key.push_back(socket.slots);
  }
  return HashOf(key);
}

}  // namespace larder::pipeline::plan
