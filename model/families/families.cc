// The table of families.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {

constexpr std::array kFamilies = {
    &kLlama,    &kQwen2,        &kQwen3,        &kErnie45,       &kExaone4,     &kGlm4,
    &kGranite,  &kHunyuanDense, &kMistral3,     &kOlmo2,         &kPhi3,        &kSeedOss,
    &kSmolLm3,  &kGemma,        &kGemma2,       &kGemma3,        &kGemma4,      &kCohere2,
    &kCommandR, &kQwen35,       &kLfm2,         &kGraniteHybrid, &kQwen3Moe,    &kOlmoe,
    &kQwen2Moe, &kGraniteMoe,   &kErnie45Moe,   &kMinimaxM2,     &kDots1,       &kFalconH1,
    &kLfm2Moe,  &kQwen35Moe,    &kQwen3Next,    &kGlm4Moe,       &kBailingMoe2, &kGptOss,
    &kArcee,    &kNemotronH,    &kNemotronHMoe, &kDeepseek2};

constexpr std::string_view kKeysOfSome[] = {"attention.output_scale",
                                            "attention.scale",
                                            "attention.temperature_scale",
                                            "attn_logit_softcapping",
                                            "embedding_scale",
                                            "final_logit_softcapping",
                                            "logit_scale",
                                            "residual_scale",
                                            "rope.scaling.yarn_log_multiplier",
                                            "router_logit_softcapping"};

constexpr std::string_view kCountsOfSome[] = {"attention.shared_kv_layers",
                                              "embedding_length_per_layer_input"};

// Of a model with experts.
constexpr size_t kMostExperts = 1024, kMostUsed = 64, kMostGroups = 64, kMostLength = 1 << 17;

struct Missing {
  std::string_view name, what;
};
constexpr Missing kMissing[] = {
    {"afmoe", "gates of attention's output beside experts, norms behind both"},
    {"apertus", "an FFN of xIELU"},
    {"arctic", "a dense FFN beside experts, both added"},
    {"arwkv7", "RWKV's time mixing"},
    {"baichuan", "scores with a slope by distance (ALiBi) in its large models"},
    {"bert", "attention in both directions"},
    {"bitnet", "weights of three values, norms before O and down"},
    {"bloom", "scores with a slope by distance (ALiBi), LayerNorm with biases"},
    {"chameleon", "images as tokens, LayerNorm of q and k"},
    {"codeshell", "LayerNorm with biases, an FFN of GELU without a gate"},
    {"cogvlm", "matrices of their own for images"},
    {"dbrx", "LayerNorm before experts, q, k and v clamped"},
    {"deci", "layers without attention or FFN"},
    {"deepseek32", "sparse attention by an indexer"},
    {"dream", "text by diffusion, attention in both directions"},
    {"eurobert", "attention in both directions"},
    {"falcon",
     "LayerNorm with biases, attention and FFN side by side, an FFN of GELU without a gate"},
    {"gemma-embedding", "attention in both directions"},
    {"gemma3n", "AltUp, embeddings of each layer"},
    {"glm-dsa", "sparse attention by an indexer"},
    {"gpt2", "learned positions, LayerNorm with biases, an FFN of GELU without a gate"},
    {"gptj",
     "attention and FFN side by side, LayerNorm with biases, an FFN of GELU without a gate"},
    {"gptneox", "LayerNorm with biases, an FFN of GELU without a gate"},
    {"grok", "experts of GELU with norms behind, caps of its own"},
    {"grovemoe", "experts in pairs with shared halves"},
    {"hunyuan-moe", "experts with a shared one, q and k normalised behind their rotation"},
    {"jais", "scores with a slope by distance (ALiBi), learned scales"},
    {"jamba", "state spaces of Mamba-1 beside attention and experts"},
    {"jina-bert-v2", "attention in both directions"},
    {"jina-bert-v3", "attention in both directions"},
    {"kimi-linear",
     "recurrent layers (a delta rule with a decay for each element) beside latent attention"},
    {"llada", "text by diffusion, attention in both directions"},
    {"llada-moe", "text by diffusion, attention in both directions"},
    {"llama-embed", "attention in both directions"},
    {"llama4",
     "attention in chunks, q and k normalised without weights, queries that grow by position"},
    {"mamba", "models without attention (state spaces of Mamba-1)"},
    {"mamba2", "models without attention"},
    {"mimo2", "windows with heads of two sizes, sinks and experts"},
    {"minicpm", "scales of its own for embedding, residual and logits"},
    {"minicpm3", "latent attention without experts, scales of its own"},
    {"modern-bert", "attention in both directions"},
    {"mpt", "scores with a slope by distance (ALiBi), LayerNorm, an FFN of GELU without a gate"},
    {"nemotron", "LayerNorm with biases, an FFN of squares of ReLU without a gate"},
    {"neo-bert", "attention in both directions"},
    {"nomic-bert", "attention in both directions"},
    {"nomic-bert-moe", "attention in both directions"},
    {"olmo", "LayerNorm without weights, q, k and v clamped"},
    {"openelm", "heads and FFNs of another size in each layer"},
    {"orion", "LayerNorm with biases"},
    {"pangu-embedded", "biases of O beside those of q, k and v"},
    {"phi2", "LayerNorm with biases, GELU without a gate matrix"},
    {"phimoe",
     "a router that mixes two experts in its own way (SparseMixer), LayerNorm with biases"},
    {"plamo", "attention and FFN side by side"},
    {"plamo2", "state spaces of Mamba-1 beside attention"},
    {"plm", "latent attention without experts, an FFN of squares of ReLU"},
    {"qwen2vl", "images, rotation in sections for their rows and columns"},
    {"qwen3vl", "images, rotation in sections for their rows and columns"},
    {"qwen3vlmoe", "images, rotation in sections for their rows and columns"},
    {"refact", "scores with a slope by distance (ALiBi)"},
    {"rnd1", "text by diffusion, attention in both directions"},
    {"rwkv6", "RWKV's time mixing"},
    {"rwkv6qwen2", "RWKV's time mixing"},
    {"rwkv7", "RWKV's time mixing"},
    {"smallthinker", "a router before attention, experts of ReLU"},
    {"stablelm", "LayerNorm with biases, q and k normalised by it"},
    {"starcoder", "learned positions, LayerNorm with biases, an FFN of GELU without a gate"},
    {"starcoder2", "LayerNorm with biases, an FFN of GELU without a gate"},
    {"t5", "an encoder beside the decoder, positions as biases of scores"},
    {"t5encoder", "attention in both directions"},
    {"wavtokenizer-dec", "sound"},
};

constexpr std::string_view kWindow = "attention.sliding_window";
constexpr std::string_view kPattern = "attention.sliding_window_pattern";
constexpr std::string_view kBaseOfWindows = "rope.freq_base_swa";

// Which layers have windows, in a file that has windows.
struct WindowPattern {
  std::vector<bool> windows;  // [layer]
  bool in_file = false;       // the file has it; else it is the family's
};
WindowPattern ReadWindowPattern(const Family& family, const FamilyKeys& keys, size_t layers) {
  if (const std::optional<std::vector<bool>> flags = keys.Flags(kPattern)) {
    if (flags->size() != layers) {
      throw Error("{} has {} values, expected one for each of the {} layers", keys.Name(kPattern),
                  flags->size(), layers);
    }
    return {*flags, true};
  }
  const std::optional<uint64_t> in_file = keys.Unsigned(kPattern);
  if (in_file == 0) {
    throw Error("{} is 0, expected every how many-th layer sees all, or a flag for each layer",
                keys.Name(kPattern));
  }
  const uint64_t full_every = in_file.value_or(family.full_every.value_or(0));
  std::vector<bool> windows(layers, true);
  for (uint64_t i = full_every; full_every != 0 && i <= layers; i += full_every)
    windows[i - 1] = false;
  return {std::move(windows), in_file.has_value()};
}

void ReadWindows(const Family& family, const FamilyKeys& keys, size_t context, KeysOfModel& model) {
  const std::optional<uint64_t> in_file = keys.Unsigned(kWindow);
  if (in_file == 0 && !family.no_window_is_0) {
    throw Error(
        "{} is 0, expected positions, 1 or more; models without windows don't have this key",
        keys.Name(kWindow));
  }
  if (family.always_windows && !in_file && family.window == 0)
    throw Error("{} is missing: all {} models have windows", keys.Name(kWindow), family.name);
  const uint64_t window = in_file.value_or(family.window);
  const auto [windows, has_pattern] = ReadWindowPattern(family, keys, model.layers.size());
  const bool any = std::ranges::find(windows, true) != windows.end();
  std::optional<double> base = keys.Float(kBaseOfWindows);
  if (!base) base = family.window_base;
  if (base && !(*base >= 1.0 + 1e-6 && *base <= 1e12))
    throw Error("{} is {}, expected 1.000001 to 1000000000000", keys.Name(kBaseOfWindows), *base);
  if (window == 0) {
    if (!has_pattern || !any) return;
    throw Error("{} says that layers have windows, but not how long: '{}' is missing or 0",
                keys.Name(kPattern), kWindow);
  }
  if (!family.full_every && window < context) {
    throw Error("{} is {}, less than the context {}: Larder does not know the windows of {} models",
                keys.Name(kWindow), window, context, family.name);
  }
  if (has_pattern && !any) {
    throw Error("{} says that no layer has a window, but '{}' is {}", keys.Name(kPattern), kWindow,
                window);
  }
  model.window = window;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    if (!windows[i]) continue;
    model.layers[i].window = window;
    if (base) model.layers[i].rotary.base = *base;
  }
}

// The first of a model's layers that have experts, and every how many-th has from there on.
struct LayersWithExperts {
  size_t first = 0, step = 1;
  bool Has(size_t layer) const { return layer >= first && (layer + 1) % step == 0; }
};

void ReadExpertGroups(const FamilyKeys& keys, ExpertSpec& experts) {
  if (keys.Unsigned("expert_group_count").value_or(0) <= 1) return;
  experts.groups = keys.Count("expert_group_count", 1, kMostGroups);
  const size_t of_group = experts.count / experts.groups;
  if (experts.count % experts.groups != 0 || of_group < 2) {
    throw Error("{} is {}, expected groups of equally many, at least two, of {} experts",
                keys.Name("expert_group_count"), experts.groups, experts.count);
  }
  experts.groups_used = keys.Count("expert_group_used_count", 0, experts.groups);
  if (experts.used > experts.groups_used * of_group) {
    throw Error("{} is {}, but {} groups of {} experts have fewer", keys.Name("expert_used_count"),
                experts.used, experts.groups_used, of_group);
  }
}

ExpertSpec ReadExpertSpec(const FamilyExperts& of_family, const FamilyKeys& keys, size_t count) {
  ExpertSpec experts{.count = count,
                     .used = keys.Count("expert_used_count", 0, std::min(count, kMostUsed)),
                     .gating = of_family.gating,
                     .normalise = of_family.normalise,
                     .scale = keys.Positive("expert_weights_scale", 1.0)};
  if (const auto gating = keys.Unsigned("expert_gating_func"); gating.value_or(0) != 0) {
    if (*gating > 3) {
      throw Error("{} is {}, expected 1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)",
                  keys.Name("expert_gating_func"), *gating);
    }
    experts.gating = *gating == 2 ? ExpertGating::kSigmoid : ExpertGating::kSoftmax;
    experts.normalise |= *gating == 3;
  }
  if (const auto normalise = keys.Flag("expert_weights_norm")) experts.normalise = *normalise;
  ReadExpertGroups(keys, experts);
  return experts;
}

void ReadExperts(const Family& family, const FamilyKeys& keys, KeysOfModel& model) {
  const uint64_t count = keys.Unsigned("expert_count").value_or(0);
  if (!family.experts) {
    if (count == 0) return;
    throw Error("{} is {}: Larder does not know experts in a {} model", keys.Name("expert_count"),
                count, family.name);
  }
  if (count == 0 && family.experts->optional) return;
  ExpertSpec experts =
      ReadExpertSpec(*family.experts, keys, keys.Count("expert_count", 0, kMostExperts));
  const LayersWithExperts with{.first = keys.Unsigned("leading_dense_block_count").value_or(0),
                               .step = keys.Count("interleave_moe_layer_step", 1, 1024)};
  for (size_t i = 0; i < model.layers.size(); ++i) {
    KeysOfModel::Layer& layer = model.layers[i];
    if (!with.Has(i) || layer.sizes.ffn == 0) continue;
    const size_t of_layer = layer.sizes.ffn;
    size_t length = of_layer;
    if (family.experts->length_of_used) length = std::max<size_t>(1, length / experts.used);
    layer.sizes.ffn = keys.Count("expert_feed_forward_length", length, kMostLength);
    layer.experts = experts;
    if (family.experts->beside_ffn) {
      layer.experts.beside_ffn = true;
      layer.experts.shared_ffn = of_layer;
    }
    if (!family.experts->shared) continue;
    const uint64_t shared = keys.Unsigned("expert_shared_count").value_or(0);
    const bool has_length = keys.Unsigned("expert_shared_feed_forward_length").value_or(0) != 0;
    if (shared == 0 && !has_length) continue;
    if (shared > kMostUsed) {
      throw Error("{} is {}, expected up to {}", keys.Name("expert_shared_count"), shared,
                  kMostUsed);
    }
    layer.experts.shared_ffn = has_length
                                   ? keys.Count("expert_shared_feed_forward_length", 1, kMostLength)
                                   : static_cast<size_t>(shared) * layer.sizes.ffn;
  }
}

}  // namespace

std::span<const Family* const> Families() { return kFamilies; }

const Family* FindFamily(std::string_view name) {
  const auto* const found = std::ranges::find(kFamilies, name, &Family::name);
  return found == kFamilies.end() ? nullptr : *found;
}

const Family& FamilyOf(std::string_view name) {
  const Family* const family = FindFamily(name);
  LARDER_CHECK(family != nullptr, "no family {}", name);
  return *family;
}

double FamilyKeys::Positive(std::string_view suffix, double absent) const {
  const double value = Float(suffix).value_or(absent);
  if (value >= 1e-6 && value <= 1e6) return value;  // refuses NaN, too
  throw Error("{} is {}, expected 0.000001 to 1000000", Name(suffix), value);
}

double FamilyKeys::PositiveOrNone(std::string_view suffix, double absent) const {
  return Float(suffix).value_or(absent) == 0.0 ? 0.0 : Positive(suffix, absent);
}

double DimPerHeadDivisor(const LayerSizes& sizes) {
  return std::sqrt(static_cast<double>(sizes.dim) / static_cast<double>(sizes.heads));
}

size_t FamilyKeys::Count(std::string_view suffix, size_t absent, size_t most, size_t unit) const {
  const std::optional<uint64_t> value = Unsigned(suffix);
  if (!value && absent == 0) throw Error("{} is missing", Name(suffix));
  const uint64_t count = value.value_or(absent);
  if (count >= 1 && count <= most && count % unit == 0) return count;
  throw Error("{} is {}, expected {}{} to {}", Name(suffix), count,
              unit == 1 ? "" : fmt::format("a multiple of {}, ", unit), unit, most);
}

std::span<const std::string_view> KeysOfSome() { return kKeysOfSome; }
std::span<const std::string_view> CountsOfSome() { return kCountsOfSome; }

void ReadKeys(const Family& family, const FamilyKeys& keys, size_t context, KeysOfModel& model) {
  ReadWindows(family, keys, context, model);
  ReadExperts(family, keys, model);
  if (family.read != nullptr) family.read(keys, model);
  for (KeysOfModel::Layer& layer : model.layers) {
    if (layer.window >= context) layer.window = 0;
  }
}

std::vector<uint32_t> FirstBlocks(const KeysOfModel& model) {
  std::vector<uint32_t> first;
  uint32_t next = 0;
  for (const KeysOfModel::Layer& layer : model.layers) {
    first.push_back(next);
    next += static_cast<uint32_t>(layer.blocks);
  }
  return first;
}

std::string_view MissingIn(std::string_view name) {
  const auto* const found = std::ranges::find(kMissing, name, &Missing::name);
  return found == std::end(kMissing) ? std::string_view() : found->what;
}

LayerSpec MakeLayerSpec(const Family& family, const KeysOfModel::Layer& layer, float norm_epsilon,
                        const TensorForms& forms, size_t input_size) {
  LayerTraits traits{.sizes = layer.sizes,
                     .norm_epsilon = norm_epsilon,
                     .ops = layer.ops.empty() ? family.ops : layer.ops,
                     .forms = forms,
                     .qk_norm = family.qk_norm,
                     .rotary = layer.rotary,
                     .attention_divisor = layer.attention_divisor,
                     .temperature = layer.temperature,
                     .window = layer.window,
                     .norm = family.norm,
                     .gate = family.gate,
                     .score_cap = layer.score_cap,
                     .value_norm = family.value_norm,
                     .output_gate = layer.output_gate,
                     .recurrence = layer.recurrence,
                     .experts = layer.experts,
                     .latent = layer.latent,
                     .kv_of = layer.kv_of,
                     .input_size = input_size,
                     .ffn_apart = family.ffn_apart,
                     .renamed = family.renamed};
  traits.forms.value_is_key &= layer.may_lack_value;
  traits.forms.group_norm |= family.group_norm;
  if (layer.kv_of) traits.forms.fused_qkv = traits.forms.value_is_key = false;
  if (family.qk_norm_where_in_file && !traits.forms.qk_norm) traits.qk_norm = QkNorm::kNone;
  traits.forms.qkv_bias |= family.qkv_bias == Family::QkvBias::kAlways;
  traits.rotary.pairing = family.pairing;
  traits.forms.router_bias &= family.experts && family.experts->bias;
  traits.forms.shared_gate &= family.experts && family.experts->shared_gate;
  traits.sinks = family.sinks;
  if (layer.experts.count != 0) {  // the file's forms are those of an FFN
    traits.router_logit_bias = family.experts->biases;
    traits.forms.gate_up_bias = traits.forms.down_bias = family.experts->biases;
    traits.forms.fused_gate_up = false;
  }
  if (layer.recurrence.any() && !layer.recurrence.beside_attention()) {  // these are attention's
    traits.qk_norm = QkNorm::kNone;
    traits.forms.qkv_bias = traits.forms.fused_qkv = false;
  }
  return MakeLayerSpec(traits);
}

}  // namespace larder::model::families
