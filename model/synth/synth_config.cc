#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/families/family.h"
#include "model/synth/synth.h"

namespace larder::model::inline synth {

LayerSizes ModelShape::SizesOf(size_t layer) const {
  const auto or_odd = [&](size_t even, size_t odd) {
    return layer % 2 == 1 && odd != 0 ? odd : even;
  };
  const size_t every_full =
      full_every != 0 ? full_every : FamilyOf(architecture).full_every.value_or(0);
  const bool full = full_kv_heads != 0 && every_full != 0 && (layer + 1) % every_full == 0;
  const bool shares = shared_kv_ffn != 0 && layer + shared_kv >= layers;
  const size_t every = FamilyOf(architecture).sample.attention_every;
  const bool attends = every == 0 || layer % every == every - 1;
  // Some layers of such families have none.
  const bool has_ffn = !FamilyOf(architecture).ffn_apart || layer % 4 != 1;
  return {.dim = dim,
          .ffn = shares    ? shared_kv_ffn
                 : has_ffn ? or_odd(ffn, odd_ffn)
                           : 0,
          .heads = or_odd(heads, odd_heads),
          .kv_heads = !attends                        ? 0
                      : FamilyOf(architecture).latent ? 1
                      : full                          ? full_kv_heads
                                                      : or_odd(kv_heads, odd_kv_heads),
          .head_size = head_size};
}

std::vector<LayerSizes> ModelShape::Blocks() const {
  std::vector<LayerSizes> blocks;
  for (size_t layer = 0; layer < layers; ++layer) {
    blocks.push_back(SizesOf(layer));
    if (!FamilyOf(architecture).ffn_apart || blocks.back().ffn == 0) continue;
    LayerSizes of_ffn = blocks.back();
    blocks.back().ffn = of_ffn.kv_heads = 0;
    blocks.push_back(of_ffn);
  }
  return blocks;
}

namespace {

// The keys that a synthetic file of the family has besides those of its shape.
class SampleKeys final : public FamilyKeys {
 public:
  SampleKeys(const ModelShape& shape, const Family& family) : shape_(shape), family_(family) {}
  std::optional<double> Float(std::string_view suffix) const override {
    for (const Family::Sample::Value& value : family_.sample.values)
      if (value.key == suffix) return value.value;
    return {};
  }
  std::optional<bool> Flag(std::string_view) const override { return {}; }
  std::optional<uint64_t> Unsigned(std::string_view suffix) const override {
    if (const size_t window = WindowOf(shape_); suffix == "attention.sliding_window" && window != 0)
      return window;
    for (const auto& [key, value] : CountsOfSample(shape_))
      if (key == suffix) return value;
    for (const auto& [key, value] : KeysOfState(shape_))
      if (key == suffix) return value;
    for (const auto& [key, value] : KeysOfExperts(shape_))
      if (key == suffix) return value;
    for (const auto& [key, value] : KeysOfLatent(shape_))
      if (key == suffix) return value;
    for (const auto& [key, value] : KeysOfInputs(shape_))
      if (key == suffix) return value;
    return {};
  }
  std::optional<std::vector<bool>> Flags(std::string_view) const override { return {}; }
  std::string Name(std::string_view suffix) const override { return std::string(suffix); }

 private:
  const ModelShape& shape_;
  const Family& family_;
};

KeysOfModel KeysOf(const ModelShape& shape, const Family& family) {
  KeysOfModel keys;
  keys.norm_epsilon = static_cast<float>(shape.norm_epsilon);
  RotarySpec rotary;
  rotary.dim = RotaryDim(shape);
  rotary.base = shape.rope_base;
  if (family.sample.original_context != 0) rotary.original_context = OriginalContext(shape);
  if (shape.llama3_rope_factor > 0)
    rotary.freq_factors = Llama3FreqFactors(rotary.dim, shape.rope_base, shape.llama3_rope_factor);
  if (family.sample.yarn_factor > 0.0) {
    rotary.scaling = RopeScaling::kYarn;
    rotary.scale_factor = family.sample.yarn_factor;
  }
  if (family.long_rope) {
    rotary.freq_factors = LongRopeFactors(rotary.dim, false);
    rotary.long_factors = LongRopeFactors(rotary.dim, true);
    rotary.magnitude = kLongRopeMagnitude;
  }
  for (const LayerSizes& block : shape.Blocks())
    keys.layers.push_back({.sizes = block, .rotary = rotary});
  ReadKeys(family, SampleKeys(shape, family), shape.context, keys);
  for (KeysOfModel::Layer& layer : keys.layers)
    if (!layer.has_factors) layer.rotary.freq_factors.clear();
  return keys;
}

}  // namespace

std::vector<std::pair<std::string_view, uint32_t>> CountsOfSample(const ModelShape& shape) {
  std::vector<std::pair<std::string_view, uint32_t>> counts;
  for (const auto& [key, value] : FamilyOf(shape.architecture).sample.counts) {
    const size_t given = key.ends_with("_swa")                ? shape.window_head_size
                         : key == "leading_dense_block_count" ? shape.dense_layers
                                                              : 0;
    counts.emplace_back(key, given != 0 ? static_cast<uint32_t>(given) : value);
  }
  return counts;
}

std::vector<std::pair<std::string_view, uint32_t>> KeysOfState(const ModelShape& shape) {
  const StateKind state = FamilyOf(shape.architecture).sample.state;
  if (state == StateKind::kNone) return {};
  const auto or_else = [](size_t value, size_t other) {
    return static_cast<uint32_t>(value != 0 ? value : other);
  };
  const uint32_t heads = or_else(shape.value_heads, shape.heads);
  std::vector<std::pair<std::string_view, uint32_t>> keys = {
      {"ssm.conv_kernel", 4},
      {"ssm.state_size", or_else(shape.key_size, 32)},
      {"ssm.group_count", or_else(shape.key_heads, shape.kv_heads)},
      {"ssm.time_step_rank", heads},
      {"ssm.inner_size", heads * or_else(shape.value_size, 32)}};
  if (state == StateKind::kDeltaRule) keys.emplace_back("full_attention_interval", 4);
  return keys;
}

std::vector<std::pair<std::string_view, uint32_t>> KeysOfLatent(const ModelShape& shape) {
  if (!FamilyOf(shape.architecture).latent) return {};
  const auto u32 = [](size_t value) { return static_cast<uint32_t>(value); };
  const size_t rotated = RotaryDim(shape), rank = shape.head_size - rotated;
  const auto or_half = [&](size_t size) {
    return size != 0 ? size : std::max<size_t>(1, rank / 2);
  };
  std::vector<std::pair<std::string_view, uint32_t>> keys = {
      {"attention.value_length", u32(rank)},
      {"attention.kv_lora_rank", u32(rank)},
      {"attention.key_length_mla", u32(rotated + or_half(shape.key_size))},
      {"attention.value_length_mla", u32(or_half(shape.value_size))}};
  const size_t query_rank = shape.query_rank.value_or(std::max<size_t>(1, shape.dim / 2));
  if (query_rank != 0) keys.emplace_back("attention.q_lora_rank", u32(query_rank));
  return keys;
}

std::vector<std::pair<std::string_view, uint32_t>> KeysOfExperts(const ModelShape& shape) {
  const Family& family = FamilyOf(shape.architecture);
  const auto u32 = [](size_t value) { return static_cast<uint32_t>(value); };
  const size_t experts = shape.experts != 0 ? shape.experts : family.sample.experts;
  if (!family.experts || experts == 0) return {};
  const size_t length = shape.expert_ffn != 0 ? shape.expert_ffn : shape.ffn;
  std::vector<std::pair<std::string_view, uint32_t>> keys = {
      {"expert_count", u32(experts)},
      {"expert_used_count",
       u32(shape.experts_used != 0 ? shape.experts_used : family.sample.experts_used)},
      {"expert_feed_forward_length", u32(length)},
      {"expert_gating_func", family.experts->gating == ExpertGating::kSigmoid ? 2u : 1u}};
  const size_t shared = shape.shared_ffn != 0      ? shape.shared_ffn
                        : family.sample.shared_ffn ? 2 * length
                                                   : 0;
  if (shared != 0) keys.emplace_back("expert_shared_feed_forward_length", u32(shared));
  if (family.latent) keys.emplace_back("expert_shared_count", u32(shared / length));  // for peers
  return keys;
}

std::vector<std::pair<std::string_view, uint32_t>> KeysOfInputs(const ModelShape& shape) {
  std::vector<std::pair<std::string_view, uint32_t>> keys;
  if (shape.input_size != 0)
    keys.emplace_back("embedding_length_per_layer_input", static_cast<uint32_t>(shape.input_size));
  if (shape.shared_kv != 0)
    keys.emplace_back("attention.shared_kv_layers", static_cast<uint32_t>(shape.shared_kv));
  if (shape.full_every != 0)
    keys.emplace_back("attention.sliding_window_pattern", static_cast<uint32_t>(shape.full_every));
  return keys;
}

size_t WindowOf(const ModelShape& shape) {
  if (shape.window != 0) return shape.window;
  const Family& family = FamilyOf(shape.architecture);
  return family.always_windows && family.window == 0 ? shape.context : 0;
}

size_t RotaryDim(const ModelShape& shape) {
  if (shape.rotated != 0) return shape.rotated;
  const double part = FamilyOf(shape.architecture).sample.rotated;
  return 2 * static_cast<size_t>(part * static_cast<double>(shape.head_size) / 2.0);
}

size_t OriginalContext(const ModelShape& shape) {
  const size_t of_family = FamilyOf(shape.architecture).sample.original_context;
  return of_family != 0 ? std::min(of_family, shape.context) : shape.context;
}

std::vector<float> LongRopeFactors(size_t rotary_dim, bool for_long) {
  std::vector<float> factors(rotary_dim / 2);
  for (size_t i = 0; i < factors.size(); ++i)
    factors[i] = 1.0f + static_cast<float>(i) * (for_long ? 0.5f : 0.0625f);
  return factors;
}

ModelConfig ConfigOfShape(const ModelShape& shape, const std::string& name,
                          const MatrixTypes& types) {
  ModelConfig config;
  const Family& family = FamilyOf(shape.architecture);
  config.architecture_name = family.name;
  config.name = name;
  config.layers = shape.layers;
  config.dim = shape.dim;
  config.vocab = shape.vocab;
  config.trained_context = shape.context;
  config.norm_epsilon = static_cast<float>(shape.norm_epsilon);
  config.norm = family.norm;
  config.tied_embeddings = shape.tied;
  KeysOfModel keys = KeysOf(shape, family);
  config.scales = keys.scales;
  config.input_size = keys.input_size;
  if (family.ffn_apart) config.first_block = FirstBlocks(keys);
  const TensorForms forms{.qkv_bias = shape.qkv_bias || family.sample.qkv_bias,
                          .o_bias = shape.output_biases || family.sample.output_bias,
                          .gate_up_bias = shape.gate_biases,
                          .down_bias = shape.output_biases,
                          .fused_qkv = family.sample.fused_qkv,
                          .fused_gate_up = family.sample.fused_gate_up,
                          .fused_rates = family.sample.fused_rates,
                          .value_is_key = family.sample.value_is_key && !shape.own_values,
                          .qk_norm = shape.qk_norm || family.sample.qk_norm,
                          .router_bias = family.sample.router_bias,
                          .shared_gate = family.sample.shared_gate,
                          .group_norm = family.sample.group_norm};
  for (const KeysOfModel::Layer& layer : keys.layers) {
    const bool added = config.AddLayer(
        MakeLayerSpec(family, layer, config.norm_epsilon, forms, config.input_size));
    LARDER_CHECK(added, "layers of more than {} kinds", ModelConfig::kMaxKinds);
  }
  config.types.embedding = FallbackType(types.OfEmbedding(config.tied_embeddings), config.dim);
  config.types.head =
      config.tied_embeddings ? config.types.embedding : FallbackType(types.OfHead(), config.dim);
  if (config.input_size != 0) {
    config.types.input_embedding = FallbackType(types.OfEmbedding(false), config.all_inputs());
    config.types.input_matrix = FallbackType(types.most, config.dim);
  }
  config.types.layers.resize(config.layers);
  for (size_t layer = 0; layer < config.layers; ++layer) {
    config.types.layers[layer].fill(TensorType::kQ8_0);
    const std::vector<TensorSpec>& tensors = config.layer(layer).tensors;
    for (const TensorSpec& tensor : tensors) {
      if (tensor.kind != TensorKind::kMatrix) continue;
      // Of the tensors that are one in the file.
      const TensorRole first = tensor.shared
                                   ? TensorRole::kK
                                   : std::ranges::find_if(tensors, [&](const TensorSpec& other) {
                                       return other.suffix == tensor.suffix && other.first == 0;
                                     })->role;
      config.types.layers[layer][static_cast<size_t>(tensor.role)] =
          FallbackType(types.OfLayer(first, layer, config.layers), tensor.cols);
    }
  }
  return config;
}

}  // namespace larder::model::synth
