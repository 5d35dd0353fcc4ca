// Gemma 4 (Google; transformers' Gemma4ForCausalLM, read 2026-11).
//
// Traps: those of gemma3, but norm weights have nothing added. Layers with windows have heads of
// another size (key_length_swa) and, by the array, other KV heads; only layers without one turn by
// the factors of rope_freqs, of which some are so large that the pair stands still. Scores are not
// divided. V has a norm without weights, and where the file has none it is K before its norm. The
// residual is multiplied behind each layer. In E2B and E4B each layer has an input beside it
// (LayerSpec::input_size), and the last layers, whose FFN is longer, attend to the keys and values
// of the last layer before them of their kind (with a window, or without); what files may still
// have of theirs counts for nothing. 26B-A4B has experts beside the FFN of each layer, whose
// router looks at the residual (ExpertSpec::beside_ffn). The vocabulary is BPE over text with
// visible spaces.
#include <cmath>

#include "base/error.h"
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr std::string_view kHeadSize = "attention.key_length_swa";
constexpr std::string_view kValueSize = "attention.value_length_swa";
constexpr std::string_view kRotated = "rope.dimension_count_swa";
constexpr std::string_view kShared = "attention.shared_kv_layers";
constexpr std::string_view kInputSize = "embedding_length_per_layer_input";
constexpr size_t kMostInputSize = 1 << 14;
constexpr std::string_view kGemma4Keys[] = {"final_logit_softcapping", kShared, kInputSize};
constexpr LayerTraits::Renamed kGemma4Renamed[] = {{TensorRole::kSharedGate, "ffn_gate.weight"},
                                                   {TensorRole::kSharedUp, "ffn_up.weight"},
                                                   {TensorRole::kSharedDown, "ffn_down.weight"}};
constexpr Family::Sample::Value kGemma4Sample[] = {{"final_logit_softcapping", 3.0f}};
constexpr Family::Sample::Count kGemma4Counts[] = {
    {kHeadSize, 32}, {kValueSize, 32}, {kRotated, 32}};

size_t EvenUpTo(const FamilyKeys& keys, std::string_view key, size_t absent, size_t most) {
  const uint64_t value = keys.Unsigned(key).value_or(absent);
  if (value >= 2 && value <= most && value % 2 == 0) return value;
  throw Error("{} is {}, expected an even number from 2 to {}", keys.Name(key), value, most);
}

// The layers that have no keys and values of their own.
void ReadSharedKeysAndValues(const FamilyKeys& keys, KeysOfModel& model) {
  const uint64_t shared = keys.Unsigned(kShared).value_or(0);
  const size_t layers = model.layers.size();
  if (shared >= layers) {
    throw Error("{} is {}, expected less than the {} layers", keys.Name(kShared), shared, layers);
  }
  const size_t own = layers - shared;
  for (size_t i = own; i < layers; ++i) {
    KeysOfModel::Layer& layer = model.layers[i];
    for (size_t of = 0; of < own; ++of)
      if (model.layers[of].window == layer.window) layer.kv_of = of;
    if (!layer.kv_of) {
      throw Error("{} is {}: layer {} has {} window, and no layer before layer {} is like that",
                  keys.Name(kShared), shared, i, layer.window == 0 ? "no" : "a", own);
    }
    const LayerSizes &sizes = layer.sizes, &of = model.layers[*layer.kv_of].sizes;
    if (sizes.kv_heads == of.kv_heads) continue;
    throw Error("{} is {}: layer {} has {} KV heads, expected the {} of layer {}, which it shares",
                keys.Name(kShared), shared, i, sizes.kv_heads, of.kv_heads, *layer.kv_of);
  }
}

void ReadGemma4(const FamilyKeys& keys, KeysOfModel& model) {
  const LayerSizes& sizes = model.layers[0].sizes;
  model.scales.embedding = std::sqrt(static_cast<double>(sizes.dim));
  model.scales.logit_cap = keys.PositiveOrNone("final_logit_softcapping", 0.0);
  const size_t head_size = EvenUpTo(keys, kHeadSize, sizes.head_size, kMaxHeadSize);
  const size_t rotated = EvenUpTo(keys, kRotated, head_size, head_size);
  if (EvenUpTo(keys, kValueSize, head_size, kMaxHeadSize) != head_size) {
    throw Error("{} is {}, expected '{}', which is {}", keys.Name(kValueSize),
                *keys.Unsigned(kValueSize), kHeadSize, head_size);
  }
  for (KeysOfModel::Layer& layer : model.layers) {
    layer.attention_divisor = 1.0;
    layer.may_lack_value = layer.window == 0;
    if (layer.window == 0) continue;
    layer.sizes.head_size = head_size;
    layer.rotary.dim = rotated;
    layer.has_factors = false;
  }
  ReadSharedKeysAndValues(keys, model);
  if (keys.Unsigned(kInputSize).value_or(0) == 0) return;
  model.input_size = keys.Count(kInputSize, 0, kMostInputSize);
  for (KeysOfModel::Layer& layer : model.layers) layer.ops = kPreAndPostNormInput;
}
}  // namespace

const Family kGemma4 = {.name = "gemma4",
                        .number = 18,
                        .pairing = RopePairing::kHalves,
                        .qkv_bias = Family::QkvBias::kWhereInFile,
                        .qk_norm = QkNorm::kHead,
                        .ops = kPreAndPostNormScaled,
                        .renamed = kGemma4Renamed,
                        .gate = GateKind::kGeluTanh,
                        .value_norm = true,
                        .full_every = 6,
                        .always_windows = true,
                        .window_base = 10000.0,
                        .experts = FamilyExperts{.optional = true, .beside_ffn = true},
                        .keys = kGemma4Keys,
                        .read = ReadGemma4,
                        .sample = {.values = kGemma4Sample,
                                   .counts = kGemma4Counts,
                                   .query_norm = 0.25f,
                                   .value_is_key = true}};

}  // namespace larder::model::families
