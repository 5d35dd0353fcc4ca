// A family of models: what all files of one `general.architecture` have in common, as data. Each
// has a file of its own in this folder, with its provenance, the keys that only it has, and its
// traps; families.cc lists them. No other code knows a family's name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/layer/layer_spec.h"

namespace larder::model::inline families {

// The keys of a file by the ends of their names: "attention.scale" is `granite.attention.scale`.
// Each throws Error for a key of a wrong type.
class FamilyKeys {
 public:
  virtual ~FamilyKeys() = default;
  virtual std::optional<double> Float(std::string_view suffix) const = 0;
  virtual std::optional<bool> Flag(std::string_view suffix) const = 0;
  virtual std::optional<uint64_t> Unsigned(std::string_view suffix) const = 0;
  // An array of flags; nothing where the value is not an array.
  virtual std::optional<std::vector<bool>> Flags(std::string_view suffix) const = 0;
  // "FILE: key 'granite.attention.scale'", for messages.
  virtual std::string Name(std::string_view suffix) const = 0;

  // A number from 1e-6 to 1e6; `absent` without that key. Throws Error for another one.
  double Positive(std::string_view suffix, double absent) const;
  // The same, or 0.
  double PositiveOrNone(std::string_view suffix, double absent) const;
  // A number from 1 to `most` that is a multiple of `unit`; `absent` without that key, which must
  // be there if that is 0. Throws Error for another one.
  size_t Count(std::string_view suffix, size_t absent, size_t most, size_t unit = 1) const;
};

// What multiplies the embedding's rows, what a layer adds to the residual, and logits, which then
// become cap * tanh(logit / cap) unless that is 0.
struct Scales {
  double embedding = 1.0, residual = 1.0, logits = 1.0;
  double logit_cap = 0.0;
  bool operator==(const Scales&) const = default;
};

// What divides scores where it is the root of dim / heads, not that of the head's size.
double DimPerHeadDivisor(const LayerSizes&);

// What a file's keys say: first those that all families have, then what Family::read adds.
struct KeysOfModel {
  struct Layer {
    LayerSizes sizes;
    RotarySpec rotary;               // without freq_factors; dim 0: the layer does not rotate
    double attention_divisor = 0.0;  // 0: sqrt(head size)
    Temperature temperature;
    size_t window = 0;  // LayerSpec::window, or one that hides nothing
    double score_cap = 0.0;
    bool has_factors = true;            // those of rope_freqs, if the file has them
    bool may_lack_value = false;        // of TensorForms::value_is_key
    std::span<const LayerOp> ops = {};  // empty: the family's
    bool output_gate = false;
    Recurrence recurrence = {};
    ExpertSpec experts = {};
    size_t blocks = 1;  // of the file that it is: 2, where its FFN is one of its own
    LatentSpec latent = {};
    std::optional<size_t> kv_of = {};  // LayerSpec::kv_of
  };
  std::vector<Layer> layers;
  size_t input_size = 0;  // LayerSpec::input_size
  size_t skipped = 0;     // blocks of the file behind the layers
  size_t window = 0;      // of the layers that have one; 0: the file has no windows
  float norm_epsilon = 1e-5f;
  Scales scales;
};

// What the experts of a family are like where keys do not say.
struct FamilyExperts {
  ExpertGating gating = ExpertGating::kSoftmax;
  bool normalise = true;
  bool optional = false;        // files without experts are of the family, too
  bool length_of_used = false;  // without its key an expert's length is that of the FFN divided by
                                // the used experts, not the FFN's
  bool shared = false;          // there may be a shared expert
  bool beside_ffn = false;      // ExpertSpec::beside_ffn
  bool bias = false;            // there may be kRouterBias
  bool shared_gate = false;     // there may be kSharedRouter
  bool biases = false;          // there are biases of the router's products, gate, up and down
};

struct Family {
  enum class QkvBias : uint8_t { kAlways, kWhereInFile };

  std::string_view name;  // "llama"
  int number;             // in descriptions (model/config/description.h): never another one's
  RopePairing pairing;
  QkvBias qkv_bias;
  QkNorm qk_norm;
  std::span<const LayerOp> ops;
  std::span<const LayerTraits::Renamed> renamed = {};
  NormKind norm = NormKind::kRms;
  GateKind gate = GateKind::kSilu;
  bool value_norm = false;
  bool qk_norm_where_in_file = false;  // else all files have these norms
  bool sinks = false;                  // kSinks
  bool latent = false;                 // latent attention: read() fills KeysOfModel::Layer::latent
  // In files, layers without KV heads have a state instead of attention.
  bool states_without_kv_heads = false;
  // In files, each block is one of attention, a state or an FFN: read() makes layers of them.
  bool ffn_apart = false;
  // Layers with Mamba-2 always have kGroupNorm; else where it is in the file.
  bool group_norm = false;
  std::string_view output_norm = kOutputNormTensor;
  // LongRoPE: factors of rotations in two tensors, for short and for long contexts.
  bool long_rope = false;
  // In files with windows each full_every-th layer sees all positions, and with 0 none does, unless
  // attention.sliding_window_pattern says otherwise. Nothing: such files are refused.
  std::optional<size_t> full_every = {};
  bool always_windows = false;  // a file without attention.sliding_window is refused, unless
                                // `window` says what it means
  bool no_window_is_0 = false;  // attention.sliding_window may be 0: there are none
  // What files without attention.sliding_window and rope.freq_base_swa mean.
  size_t window = 0;
  std::optional<double> window_base = {};

  std::optional<FamilyExperts> experts = {};

  // Those of KeysOfSome() and CountsOfSome() that the family has: a file of another family with one
  // is refused. read() knows windows already, and throws Error for values that make no sense; null:
  // there is nothing more to read, and layers differ in their windows alone.
  std::span<const std::string_view> keys = {};
  void (*read)(const FamilyKeys&, KeysOfModel&) = nullptr;

  // What synthetic files of the family have besides what a shape says.
  struct Sample {
    struct Value {
      std::string_view key;
      float value;
    };
    std::span<const Value> values = {};  // of `keys`
    struct Count {
      std::string_view key;
      uint32_t value;
    };
    std::span<const Count> counts = {};
    double yarn_factor = 0.0;  // > 0: YaRN
    size_t original_context = 0;
    double rotated = 1.0;                // the part of a head
    StateKind state = StateKind::kNone;  // whose keys it has: ssm.*
    // With states_without_kv_heads: each attention_every-th layer has attention.
    size_t attention_every = 0;
    bool group_norm = false;
    float query_norm = 1.0f;  // what the weights of norms of q are around
    bool qk_norm = false;     // with qk_norm_where_in_file
    bool qkv_bias = false, output_bias = false, fused_qkv = false, fused_gate_up = false,
         value_is_key = false;
    bool fused_rates = false;
    size_t experts = 0, experts_used = 0;  // where a shape does not say
    bool shared_ffn = false, router_bias = false, shared_gate = false;
  };
  Sample sample = {};
};

// What is a family of its own where the same layers have experts.
constexpr Family WithExperts(Family dense, std::string_view name, int number,
                             const FamilyExperts& experts, const Family::Sample& sample) {
  dense.name = name;
  dense.number = number;
  dense.experts = experts;
  dense.sample = sample;
  return dense;
}

// All families, the first one being `llama`.
std::span<const Family* const> Families();
// Null if there is none of that name.
const Family* FindFamily(std::string_view name);
// The family must exist.
const Family& FamilyOf(std::string_view name);
// What a known family that is not among them would need, for a message: "sliding windows". Empty:
// the name is not known.
std::string_view MissingIn(std::string_view name);
// Numbers that change results, which only some families have: those of all `keys`, and others.
std::span<const std::string_view> KeysOfSome();
// Whole numbers of that kind.
std::span<const std::string_view> CountsOfSome();

// Reads what not all families have into the layers, which have their sizes and rotations already:
// experts (expert_count and other keys of that beginning), windows (attention.sliding_window;
// attention.sliding_window_pattern, flags of the layers that have one, or a number n: each n-th
// layer has none; rope.freq_base_swa, the base of those that have one), then what Family::read
// reads. `context`: the model's; a window that is no smaller hides nothing and becomes none. Throws
// Error for values that make no sense.
void ReadKeys(const Family&, const FamilyKeys&, size_t context, KeysOfModel&);

// Of each layer the number of its first block in the file.
std::vector<uint32_t> FirstBlocks(const KeysOfModel&);

// The pairing is the family's; the other fields of the rotation are kept.
LayerSpec MakeLayerSpec(const Family&, const KeysOfModel::Layer&, float norm_epsilon,
                        const TensorForms&, size_t input_size = 0);

// Each norm precedes the block whose input it normalises; O and down add to the residual.
inline constexpr LayerOp kPreNorm[] = {
    {OpKind::kNorm, TensorRole::kAttnNorm}, {OpKind::kQkv},  {OpKind::kAttention}, {OpKind::kO},
    {OpKind::kNorm, TensorRole::kFfnNorm},  {OpKind::kGate}, {OpKind::kDown}};
// The same, and each block's output is normalised before it is added.
inline constexpr LayerOp kPreAndPostNorm[] = {
    {OpKind::kNorm, TensorRole::kAttnNorm},
    {OpKind::kQkv},
    {OpKind::kAttention},
    {.kind = OpKind::kO, .post_norm = TensorRole::kPostAttnNorm},
    {OpKind::kNorm, TensorRole::kFfnNorm},
    {OpKind::kGate},
    {.kind = OpKind::kDown, .post_norm = TensorRole::kPostFfnNorm}};
// And the sum behind the FFN is multiplied by a number of the layer.
inline constexpr LayerOp kPreAndPostNormScaled[] = {
    {OpKind::kNorm, TensorRole::kAttnNorm},
    {OpKind::kQkv},
    {OpKind::kAttention},
    {.kind = OpKind::kO, .post_norm = TensorRole::kPostAttnNorm},
    {OpKind::kNorm, TensorRole::kFfnNorm},
    {OpKind::kGate},
    {.kind = OpKind::kDown,
     .post_norm = TensorRole::kPostFfnNorm,
     .output_scale = TensorRole::kOutputScale}};
// The same, but the number multiplies the sum behind what a layer input adds.
inline constexpr LayerOp kPreAndPostNormInput[] = {
    {OpKind::kNorm, TensorRole::kAttnNorm},
    {OpKind::kQkv},
    {OpKind::kAttention},
    {.kind = OpKind::kO, .post_norm = TensorRole::kPostAttnNorm},
    {OpKind::kNorm, TensorRole::kFfnNorm},
    {OpKind::kGate},
    {.kind = OpKind::kDown, .post_norm = TensorRole::kPostFfnNorm},
    {OpKind::kInput},
    {OpKind::kInputGate},
    {.kind = OpKind::kInputOut,
     .post_norm = TensorRole::kPostInputNorm,
     .output_scale = TensorRole::kOutputScale}};
// Attention and FFN have the same input, and both add to the residual.
inline constexpr LayerOp kParallel[] = {{OpKind::kNorm, TensorRole::kAttnNorm},
                                        {OpKind::kQkv},
                                        {OpKind::kGate},
                                        {OpKind::kAttention},
                                        {OpKind::kO},
                                        {OpKind::kDown}};
// As kPreNorm, with the gated delta rule.
inline constexpr LayerOp kPreNormDelta[] = {
    {OpKind::kNorm, TensorRole::kAttnNorm}, {OpKind::kQkv},  {OpKind::kDeltaRule}, {OpKind::kO},
    {OpKind::kNorm, TensorRole::kFfnNorm},  {OpKind::kGate}, {OpKind::kDown}};
// As kPreNorm, with Mamba-2.
inline constexpr LayerOp kPreNormMamba2[] = {
    {OpKind::kNorm, TensorRole::kAttnNorm}, {OpKind::kQkv},  {OpKind::kMamba2}, {OpKind::kO},
    {OpKind::kNorm, TensorRole::kFfnNorm},  {OpKind::kGate}, {OpKind::kDown}};
// As kPreNorm, with Mamba-2 beside attention.
inline constexpr LayerOp kPreNormBesideMamba2[] = {{OpKind::kNorm, TensorRole::kAttnNorm},
                                                   {OpKind::kQkv},
                                                   {OpKind::kAttention},
                                                   {OpKind::kMamba2},
                                                   {OpKind::kO},
                                                   {OpKind::kNorm, TensorRole::kFfnNorm},
                                                   {OpKind::kGate},
                                                   {OpKind::kDown}};
// As kPreNorm, with a gated convolution.
inline constexpr LayerOp kPreNormConvolution[] = {
    {OpKind::kNorm, TensorRole::kAttnNorm}, {OpKind::kQkv},  {OpKind::kConvolution}, {OpKind::kO},
    {OpKind::kNorm, TensorRole::kFfnNorm},  {OpKind::kGate}, {OpKind::kDown}};
// Each norm follows the block whose output it normalises.
inline constexpr LayerOp kPostNorm[] = {
    {OpKind::kInput},
    {OpKind::kQkv},
    {OpKind::kAttention},
    {.kind = OpKind::kO, .post_norm = TensorRole::kPostAttnNorm},
    {OpKind::kInput},
    {OpKind::kGate},
    {.kind = OpKind::kDown, .post_norm = TensorRole::kPostFfnNorm}};

extern const Family kCohere2, kCommandR, kErnie45, kExaone4, kFalconH1, kGemma, kGemma2, kGemma3,
    kGemma4, kGlm4, kGranite, kGraniteHybrid, kHunyuanDense, kLfm2, kLlama, kMistral3, kOlmo2,
    kPhi3, kQwen2, kQwen3, kQwen35, kSeedOss, kSmolLm3, kQwen3Moe, kOlmoe, kQwen2Moe, kGraniteMoe,
    kErnie45Moe, kMinimaxM2, kDots1, kLfm2Moe, kQwen35Moe, kQwen3Next, kGlm4Moe, kBailingMoe2,
    kGptOss, kArcee, kNemotronH, kNemotronHMoe, kDeepseek2;

}  // namespace larder::model::families
