#include "attention_node/state_layers.h"

#include <algorithm>
#include <cmath>

#include "attention_node/attention_share.h"
#include "base/memory.h"

namespace larder::attention_node {
namespace {

// What the published definition adds to the squared lengths of q and k.
constexpr double kUnitEpsilon = 1e-6;

// Bytes of a table of floats in the arena.
size_t Placed(size_t floats) { return RoundUp(floats * sizeof(float), kCacheLineBytes); }

// Of the tables of a convolution's weights: one for each tap, and the biases.
size_t RowsOfConvolution(const model::LayerSpec& layer) {
  return layer.recurrence.taps + layer.Has(model::TensorRole::kConvolutionBias);
}

// Where a layer's convolution has the channels of the first query, key and value.
struct Channels {
  size_t query, key, value;
};
Channels ChannelsOf(const model::LayerSpec& layer) {
  const model::LayerSizes sizes = layer.state_sizes();
  const size_t keys = sizes.kv_heads * layer.recurrence.key_size;
  if (layer.recurrence.kind == model::StateKind::kMamba2)  // x, B, C
    return {sizes.q_rows() + keys, sizes.q_rows(), 0};
  return {0, keys, 2 * keys};
}

}  // namespace

StateLayers::StateLayers(const model::ModelConfig& config, const model::GgufFile& file,
                         const KvRegion& region, const StateLayersOptions& options)
    : config_(config),
      options_(options),
      states_(config, region),
      shapes_(config.kinds.size()),
      layers_(config.layers) {
  size_t bytes = 0, keys = 0, values = 0;
  for (size_t i = 0; i < config.layers; ++i) {
    const model::LayerSpec& spec = config.layer(i);
    if (!spec.recurrent()) continue;
    bytes += Placed(spec.state_sizes().head_size);
    keys = std::max(keys, 2 * spec.recurrence.key_size);
    values = std::max(values, spec.state_sizes().head_size);
  }
  if (bytes == 0) return;
  for (const size_t kind : config.OwnKinds())
    bytes += 2 * Placed(config.kinds[kind].recurrence.key_size);
  arena_ = topology::Arena(bytes, NodeOf(options.node_of_thread, 0));
  convolutions_ = topology::NodeArenas([&](auto&& take) {
    for (size_t i = 0; i < config.layers; ++i) {
      const model::LayerSpec& spec = config.layer(i);
      if (!spec.recurrent()) continue;
      const model::LayerSizes sizes = spec.state_sizes();
      const size_t rows = RowsOfConvolution(spec), key_size = spec.recurrence.key_size;
      layers_[i].keys.resize(key_size == 0 ? 0 : sizes.kv_heads);
      layers_[i].values.resize(sizes.heads);
      for (size_t nth = 0; nth < sizes.heads; ++nth) {
        const NumaNodeId node =
            NodeOf(options.node_of_thread, OwnerOfState(spec, nth, options.threads));
        const auto floats = [&](size_t n) {
          return reinterpret_cast<float*>(take(node, Placed(rows * n)));
        };
        const size_t key_head = nth / sizes.group(), of_key_head = nth % sizes.group();
        if (of_key_head == 0 && key_size != 0) layers_[i].keys[key_head] = floats(2 * key_size);
        layers_[i].values[model::ValueHead(spec, key_head, of_key_head)] = floats(sizes.head_size);
      }
    }
  });
  scratch_.resize(options.threads);
  scratch_arenas_ = topology::NodeArenas([&](auto&& take) {
    for (size_t t = 0; t < options.threads; ++t) {
      const auto floats = [&](size_t n) {
        return reinterpret_cast<float*>(take(NodeOf(options.node_of_thread, t), n));
      };
      scratch_[t] = {floats(Placed(kStateTokens * keys)), floats(Placed(kStateTokens * values))};
    }
  });
  for (const size_t kind : config.OwnKinds())
    if (config.kinds[kind].recurrent()) shapes_[kind] = MakeShape(config.kinds[kind]);
  for (size_t i = 0; i < config.layers; ++i)
    if (config.layer(i).recurrent()) ReadLayer(file, i);
}

std::unique_ptr<RecurrentShape> StateLayers::MakeShape(const model::LayerSpec& spec) {
  const model::LayerSizes sizes = spec.state_sizes();
  auto shape = std::make_unique<RecurrentShape>(RecurrentShape{
      .kind = spec.recurrence.kind,
      .key_size = spec.recurrence.key_size,
      .size = sizes.head_size,
      .taps = spec.recurrence.taps,
      .group = sizes.group(),
      .convolve = spec.Has(model::TensorRole::kConvolutionBias)
                      ? kernels::GetRecurrent(options_.isa).convolve_biased
                      : kernels::GetRecurrent(options_.isa).convolve,
      .epsilon = spec.norm_epsilon,
      .unit_epsilon = 0.0f,
      .query_weight = nullptr,
      .key_weight = nullptr,
      // of 0: -infinity
      .least_input = static_cast<float>(std::log(std::expm1(spec.recurrence.least_step))),
      .elementwise = &kernels::GetElementwise(options_.isa),
      .recurrent = &kernels::GetRecurrent(options_.isa),
      .states = &states_});
  if (shape->kind != model::StateKind::kDeltaRule) return shape;
  const auto key_size = static_cast<double>(spec.recurrence.key_size);
  const auto table = [&](double value) {
    const std::span<float> weights = arena_.AllocateArray<float>(spec.recurrence.key_size);
    std::ranges::fill(weights, static_cast<float>(value));
    return weights.data();
  };
  // x / sqrt(sum + e) is the norm by x / sqrt(sum / n + e / n), divided by sqrt(n).
  shape->unit_epsilon = static_cast<float>(kUnitEpsilon / key_size);
  shape->query_weight = table(1.0 / key_size);
  shape->key_weight = table(1.0 / std::sqrt(key_size));
  return shape;
}

void StateLayers::ReadLayer(const model::GgufFile& file, size_t layer) {
  using model::TensorRole;
  const model::LayerSpec& spec = config_.layer(layer);
  const model::LayerSizes sizes = spec.state_sizes();
  const size_t key_size = spec.recurrence.key_size, size = sizes.head_size;
  const size_t taps = spec.recurrence.taps, key_heads = sizes.kv_heads;
  const auto read = [&](TensorRole role) { return model::ReadVector(file, config_, layer, role); };
  const std::vector<float> filter = read(TensorRole::kConvolution);  // [channel][tap]
  const bool biased = spec.Has(TensorRole::kConvolutionBias);
  const std::vector<float> bias =
      biased ? read(TensorRole::kConvolutionBias) : std::vector<float>();
  // Channels [first, first + count) to columns [column, ...) of a table of rows of n.
  const auto place = [&](float* table, size_t n, size_t column, size_t first, size_t count) {
    for (size_t c = 0; c < count; ++c) {
      for (size_t j = 0; j < taps; ++j) table[j * n + column + c] = filter[(first + c) * taps + j];
      if (biased) table[taps * n + column + c] = bias[first + c];
    }
  };
  Layer& to = layers_[layer];
  const Channels channels = ChannelsOf(spec);
  for (size_t head = 0; head < key_heads && key_size != 0; ++head) {
    place(to.keys[head], 2 * key_size, 0, channels.query + head * key_size, key_size);
    place(to.keys[head], 2 * key_size, key_size, channels.key + head * key_size, key_size);
  }
  for (size_t head = 0; head < sizes.heads; ++head)
    place(to.values[head], size, 0, channels.value + head * size, size);
  if (spec.recurrence.kind == model::StateKind::kConvolution) return;
  to.decays = read(TensorRole::kDecay);
  to.biases = read(TensorRole::kDecayBias);
  if (spec.Has(TensorRole::kSkip)) to.skips = read(TensorRole::kSkip);
  if (!spec.Has(TensorRole::kHeadNorm)) return;
  const std::vector<float> norm = read(TensorRole::kHeadNorm);
  const std::span<float> placed = arena_.AllocateArray<float>(size);
  std::ranges::copy(norm, placed.begin());
  to.norm = placed.data();
}

const StateOperand* StateLayers::Operand(size_t thread, size_t layer, size_t kv_head,
                                         const float* qkv, size_t qkv_stride, float* out,
                                         size_t out_stride) {
  const model::LayerSpec& spec = config_.layer(layer);
  const model::LayerSizes sizes = spec.state_sizes();
  const size_t group = sizes.group();
  const Layer& of = layers_[layer];
  std::vector<StateHead> heads;
  for (size_t i = 0; i < group; ++i) {
    if (OwnerOfState(spec, kv_head * group + i, options_.threads) != thread) continue;
    const size_t head = model::ValueHead(spec, kv_head, i);
    heads.push_back({.index = i,
                     .head = head,
                     .convolution = of.values[head],
                     .decay = of.decays.empty() ? 0.0f : of.decays[head],
                     .bias = of.biases.empty() ? 0.0f : of.biases[head],
                     .skip = of.skips.empty() ? 0.0f : of.skips[head],
                     .out = out + head * sizes.head_size});
  }
  if (heads.empty()) return nullptr;
  const std::vector<StateHead>& kept = heads_.emplace_back(std::move(heads));
  return &operands_.emplace_back(
      StateOperand{.shape = shapes_[config_.KindOf(layer)].get(),
                   .scratch = scratch_[thread],
                   .qkv = qkv,
                   .qkv_stride = qkv_stride,
                   .convolution = of.keys.empty() ? nullptr : of.keys[kv_head],
                   .norm = of.norm,
                   .layer = layer,
                   .heads = kept.data(),
                   .n_heads = kept.size(),
                   .out_stride = out_stride});
}

}  // namespace larder::attention_node
