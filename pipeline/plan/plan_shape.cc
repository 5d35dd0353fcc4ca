// What follows from the model's shape and a Plan's stages: sizes, hash, prediction.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "attention_node/kv_region.h"
#include "attention_node/state_shape.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/formats/act_block.h"
#include "kernels/formats/panel_format.h"
#include "pipeline/plan/identity.h"
#include "pipeline/plan/layer_split.h"
#include "pipeline/plan/plan.h"
#include "pipeline/plan/stage_plan.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline plan {
namespace {

constexpr size_t kBatches[] = {1, 2, 4, 8, 16, 32};

constexpr double kNanoseconds = 1e3;  // in a microsecond

// What a token of a sequence reads and writes of keys, values and states.
uint64_t KvBytes(const model::ModelConfig& config, size_t first, size_t layers,
                 const model::Capacity& capacity) {
  const model::ModelConfig here = model::LayersOf(config, first, layers);
  // A state is read and written.
  return attention_node::KvShape::OfSequence(here, capacity).slot_bytes() +
         attention_node::StateShape(here).bytes();
}

// Bytes of all experts, and how many a layer that has some has.
std::pair<uint64_t, model::ExpertSpec> ExpertsOf(const model::ModelConfig& config) {
  std::pair<uint64_t, model::ExpertSpec> all;
  for (size_t i = 0; i < config.layers; ++i) {
    if (config.layer(i).experts.count == 0) continue;
    all.second = config.layer(i).experts;
    const weight_node::LayerPanels panels(config, i);
    for (const auto matrix : {weight_node::PanelMatrix::kFfn, weight_node::PanelMatrix::kDown})
      all.first += panels.bytes(matrix, panels.all(matrix));
  }
  return all;
}

// Of a token: what gates and ups make.
size_t FfnElements(const model::LayerSpec& layer) {
  return layer.experts.count != 0 ? layer.experts.used * layer.sizes.ffn + layer.experts.shared_ffn
                                  : layer.sizes.ffn;
}

// The quantised inputs of a layer's products, which each thread reads.
uint64_t InputBytes(const model::LayerSpec& layer) {
  uint64_t bytes = 0;
  for (const size_t n : {layer.sizes.dim, layer.output_size(), layer.sizes.dim, FfnElements(layer)})
    bytes += kernels::ActRowBytes(CeilDiv(n, kernels::kBlock));
  return bytes;
}

// What a thread reads of them: of attention one KV head's, of the weights all output.
uint64_t AttendedBytes(const model::LayerSpec& layer) {
  const size_t of_head = layer.sizes.kv_heads == 0 ? 0
                                                   : layer.sizes.q_rows() / layer.sizes.kv_heads +
                                                         2 * layer.sizes.head_size;
  return (of_head + layer.output_size()) * sizeof(float);
}

// Of a row: what attention on another server is sent.
uint64_t QkvBytes(const model::LayerSpec& layer) {
  const size_t columns = layer.latent.any()
                             ? (layer.sizes.heads + 1) * layer.sizes.head_size
                             : weight_node::LayerShape(layer).qkv_panels * kernels::kPanelRows;
  return columns * sizeof(float);
}

// Positions that a row at the context sees.
size_t SeenPositions(const model::LayerSpec& layer, const model::Capacity& capacity) {
  return capacity.context - model::FirstSeen(layer.window, capacity.context - 1);
}

// What PredictedStage has of attention.
uint64_t HeadPositions(const model::LayerSpec& layer, const model::Capacity& capacity) {
  return layer.attends() ? layer.sizes.heads * SeenPositions(layer, capacity) : 0;
}
uint64_t HeadElements(const model::LayerSpec& layer, const model::Capacity& capacity) {
  return HeadPositions(layer, capacity) * (layer.sizes.head_size + layer.value_size()) / 2;
}
uint64_t AttentionHeads(const model::LayerSpec& layer, const model::Capacity&) {
  return layer.attends() ? layer.sizes.kv_heads : 0;
}
uint64_t AttentionChunks(const model::LayerSpec& layer, const model::Capacity& capacity) {
  return layer.attends() ? CeilDiv(SeenPositions(layer, capacity), kernels::kChunkPositions) : 0;
}
uint64_t AppendedElements(const model::LayerSpec& layer) {
  return layer.attends() ? (layer.sizes.heads + layer.sizes.kv_heads) * layer.sizes.head_size +
                               layer.sizes.kv_heads * layer.value_size()
                         : 0;
}

// A stage of layers [first, first + layers) without what follows from its sockets. Bytes of a layer
// are the mean, rounded up, if layers differ.
PredictedStage PredictedLayers(const model::ModelConfig& config, size_t first, size_t layers,
                               const model::Capacity& capacity) {
  const model::ModelConfig here = model::LayersOf(config, first, layers);
  const auto [expert_bytes, experts] = ExpertsOf(here);
  const auto mean = [&](uint64_t (*of)(const model::LayerSpec&, const model::Capacity&)) {
    const auto sum = here.Sum([&](const model::LayerSpec& layer) { return of(layer, capacity); });
    return static_cast<double>(sum) / static_cast<double>(layers);
  };
  return {.layers = layers,
          .weight_bytes = CeilDiv(weight_node::LayerBytes(config, first, layers) +
                                      weight_node::RouterBytes(config, first, layers),
                                  layers),
          .expert_bytes = CeilDiv(expert_bytes, layers),
          .experts = experts,
          .weight_parameters = CeilDiv(here.Sum(&model::LayerSpec::active_parameters), layers),
          .kv_bytes = CeilDiv(KvBytes(config, first, layers, capacity), layers),
          .head_positions = mean(HeadPositions),
          .head_elements = mean(HeadElements),
          .attention_heads = mean(AttentionHeads),
          .attention_chunks = mean(AttentionChunks),
          .appended_elements = CeilDiv(here.Sum(AppendedElements), layers),
          .input_bytes = CeilDiv(here.Sum(InputBytes), layers),
          .attended_bytes = CeilDiv(here.Sum(AttendedBytes), layers),
          .normed_elements = CeilDiv(here.Sum([](const model::LayerSpec& layer) {
            return 2 * layer.sizes.dim + layer.output_size();
          }),
                                     layers),
          .made_elements = CeilDiv(here.Sum(FfnElements), layers),
          .sent_bytes = CeilDiv(here.Sum(QkvBytes), layers),
          .returned_bytes =
              CeilDiv(here.Sum(&model::LayerSpec::attended_size) * sizeof(float), layers)};
}

// The serving socket, as the Plan's cores and their L3 have it.
PredictedStage PredictedHead(const model::ModelConfig& config, size_t cores, bool in_l3) {
  return {.name = "serving",
          .cores = cores,
          .weight_bytes = LmHeadBytes(config),
          .weight_parameters = config.vocab * config.dim,
          .weights_in_l3 = in_l3,
          .normed_elements = config.dim};
}

}  // namespace

uint64_t LayerBytes(const model::ModelConfig& config) {
  return CeilDiv(weight_node::LayerBytes(config, 0, config.layers),
                 std::max<size_t>(config.layers, 1));
}

uint64_t LmHeadBytes(const model::ModelConfig& config) {
  return CeilDiv(config.vocab, kernels::kPanelRows) * weight_node::HeadPanel(config).bytes() +
         weight_node::MatrixBytes(config, weight_node::PanelMatrix::kInputs);
}

uint64_t EmbeddingBytes(const model::ModelConfig& config) {
  return weight_node::EmbeddingBytes(config) + weight_node::InputEmbeddingBytes(config);
}

Prediction PredictionOf(const Plan& plan, const Speeds& speeds) {
  Prediction p = {.speeds = speeds,
                  .capacity = plan.capacity,
                  .row_bytes = (plan.config.dim + plan.config.all_inputs()) * sizeof(float),
                  .links = plan.single() ? 0 : plan.stages.size() + 1};
  const model::ModelConfig& c = plan.config;
  for (const PlacedStage& stage : plan.stages) {
    PredictedStage out = PredictedLayers(c, stage.first_layer, stage.layers, plan.capacity);
    out.name = stage.socket;
    out.cores = stage.cores;
    // a layer that exceeds its budget but not the cache is still read from it
    out.weights_in_l3 =
        stage.resident || (stage.l3_bytes >= stage.weight_bytes && stage.layers == 1);
    out.l3_budget_bytes = stage.l3_budget_bytes;
    // Many stages are like the one before.
    const bool again = !p.stages.empty() && p.stages.back().cores == out.cores &&
                       p.stages.back().layers == out.layers &&
                       p.stages.back().weight_bytes == out.weight_bytes;
    if (again) {
      out.balance = p.stages.back().balance;
    } else {
      const model::ModelConfig here = plan.config_of(stage);
      out.balance = weight_node::MakeShardPlan(here, stage.cores).Balance(here);
    }
    out.kv_cores = stage.attention.empty() ? stage.cores : stage.attention_cores;
    out.kv_room_bytes = stage.kv_room_bytes;
    out.packages = stage.packages;
    out.few_rows = stage.plan.options.few_rows;
    out.attention_elsewhere = stage.attention_elsewhere();
    out.kv_room_here_bytes = stage.l3_bytes - std::min(stage.l3_bytes, stage.weight_bytes);
    p.stages.push_back(std::move(out));
  }
  const PlacedStage& first = plan.stages.front();
  // A process that joins to serve is assumed to be as fast as the first stage's socket.
  const bool beside = plan.serving_cores == 0;
  p.serves_beside = plan.serves_beside;
  p.stages.push_back(PredictedHead(
      c, beside ? first.cores : plan.serving_cores,
      plan.serving_resident ||
          (beside && first.weight_bytes + plan.lm_head_bytes <= first.l3_budget_bytes)));
  for (const size_t batch : kBatches) p.points.push_back(p.BandedPoint(batch));
  return p;
}

std::vector<size_t> LayersByTime(const model::ModelConfig& config, const model::Capacity& capacity,
                                 std::span<const StageResources> stages, bool serves_beside) {
  Prediction p = {.capacity = capacity};
  const size_t rows = CeilDiv(capacity.slots, capacity.max_in_flight);
  const uint64_t head_bytes = LmHeadBytes(config);
  std::map<std::pair<size_t, size_t>, PredictedStage> known;
  const auto cost = [&](size_t i, size_t first, size_t count) {
    auto [at, missing] = known.try_emplace({first, count});
    if (missing) at->second = PredictedLayers(config, first, count, capacity);
    PredictedStage stage = at->second;
    const StageResources& of = stages[i];
    const uint64_t bytes = weight_node::LayerBytes(config, first, count);
    const double fullest = static_cast<double>(bytes) * of.fullest_share;
    const bool unknown = of.l3_bytes == 0;
    stage.cores = of.cores;
    stage.weights_in_l3 = unknown || fullest <= static_cast<double>(of.l3_budget_bytes) ||
                          (count == 1 && bytes <= of.l3_bytes);
    stage.kv_cores = of.kv_cores;
    stage.attention_elsewhere = of.attention_elsewhere;
    stage.packages = of.packages;
    stage.kv_room_bytes = of.kv_room_bytes;
    if (of.kv_beside_weights) stage.kv_room_bytes -= std::min(stage.kv_room_bytes, bytes);
    if (unknown) stage.kv_room_bytes = UINT64_MAX;
    double us = p.Times(stage, rows).stage_us;
    if (i == 0 && serves_beside)
      us += p.Times(PredictedHead(config, of.cores, bytes + head_bytes <= of.l3_budget_bytes), rows)
                .stage_us;
    return static_cast<uint64_t>(std::llround(us * kNanoseconds));
  };
  return SplitLayers(config.layers, stages.size(), config.layers_together(), cost);
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
  for (const PlacedStage& stage : stages) bytes += stage.plan.kv_bytes;
  return bytes;
}

model::ModelConfig Plan::config_of(const PlacedStage& stage) const {
  return stage.holds_lm_head ? config : model::LayersOf(config, stage.first_layer, stage.layers);
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
  nlohmann::json key = {identity(),
                        cluster,
                        capacity.context,
                        capacity.slots,
                        capacity.kv_tokens,
                        capacity.cached_tokens,
                        capacity.max_batch_tokens,
                        capacity.max_in_flight,
                        serving_socket};
  for (const PlacedStage& stage : stages) {
    key.push_back({stage.server, stage.socket, stage.attention, stage.first_layer, stage.layers,
                   stage.plan.options.few_rows});
    for (const PlanAttentionSocket& socket : stage.plan.attention) key.push_back(socket.slots);
  }
  return HashOf(key);
}

}  // namespace larder::pipeline::plan
