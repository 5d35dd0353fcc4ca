// LayerSpec: a kind of layer as data: its sizes, its tensors with names and shapes, its operations
// in the order in which a token passes through them, its norms and its rotation. A model has one
// kind or several, and a table that says which layer is of which. ReadModelConfig makes them from a
// file's metadata. The check of tensors, the reference, the Programs and synthetic models iterate
// over it; none of them has a tensor's name or the order of operations in its own code. The sizes
// of a shard (weight_node/shard_plan.h) follow its five matrices. What a family's layers are like
// is in model/families/. Plain data, made at set-up, constant afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace larder::model::inline layer {

// The tensors outside layers, by their names in a GGUF file.
inline constexpr const char* kEmbeddingTensor = "token_embd.weight";
inline constexpr const char* kOutputNormTensor = "output_norm.weight";
// missing: lm_head is the embedding table
inline constexpr const char* kHeadTensor = "output.weight";
// Of layer inputs (LayerSpec::input_size): a row of all layers' parts for each token, the matrix of
// the other part, and the norm of that.
inline constexpr const char* kInputEmbeddingTensor = "per_layer_token_embd.weight";
inline constexpr const char* kInputMatrixTensor = "per_layer_model_proj.weight";
inline constexpr const char* kInputNormTensor = "per_layer_proj_norm.weight";
inline constexpr const char* kRopeFactorsTensor = "rope_freqs.weight";
inline constexpr const char* kShortRopeFactorsTensor = "rope_factors_short.weight";
inline constexpr const char* kLongRopeFactorsTensor = "rope_factors_long.weight";

inline constexpr size_t kMaxHeadSize = 1024;  // that a file may have

// The purpose of a tensor in a layer.
enum class TensorRole : uint8_t {
  kAttnNorm,
  kQ,
  kK,
  kV,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,
  kO,
  kFfnNorm,
  kGate,
  kUp,
  kDown,
  kOBias,
  kDownBias,
  kPostAttnNorm,
  kPostFfnNorm,
  kGateBias,
  kUpBias,
  kOutputScale,
  // Of layers with a state, beside kQ, kK, kV and kO.
  kOutputGate,   // rows like kV
  kAlpha,        // a row for each head, of which its decay is made
  kBeta,         // the same for its rate
  kConvolution,  // [channels][taps]
  kDecay,        // [heads]: what multiplies softplus(alpha + bias)
  kDecayBias,    // [heads]
  kHeadNorm,     // [head size]: the norm of a head's output
  kConvolutionBias,
  kSkip,       // [heads]: what multiplies a value that passes by the state
  kGroupNorm,  // [key heads][their part of the output]
  // Of experts. kGate, kUp and kDown are then all experts' matrices, one after another, and their
  // biases a row for each expert.
  kRouter,      // a row for each expert
  kRouterBias,  // [experts]: added to what experts are chosen by
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedRouter,  // [dim]: the shared expert's part is multiplied by the sigmoid of this * in
  // Of a state beside attention: what kQ, kK, kV and kO are of a state alone.
  kStateQ,
  kStateK,
  kStateV,
  kStateO,
  kSinks,            // [heads]: a score of each query head's softmax to which no value belongs
  kRouterLogitBias,  // [experts]: added to the router's products
  // Of latent attention (LatentSpec), beside kQ, kK and kO.
  kQueryDown,      // what queries are made of, unless that is `in`
  kQueryDownNorm,  // [query_rank]
  kLatentNorm,     // [rank]
  kKeyUp,          // [heads][rank] rows of key_size: each head's
  kValueUp,        // [heads][value_size] rows of rank
  // Of a layer input.
  kInputGate,  // [input_size] rows
  kInputOut,   // [dim] rows
  kPostInputNorm,
  // Of experts beside an FFN, which is then the shared expert.
  kExpertNorm,
  kRouterScale,  // [dim]
  kExpertScale,  // [experts]
  kPostSharedNorm,
  kPostExpertNorm
};
inline constexpr size_t kTensorRoles = 56;

// kTable: rows of numbers that are no weights of a product.
enum class TensorKind : uint8_t { kMatrix, kNorm, kBias, kTable };

struct TensorSpec {
  TensorRole role;
  TensorKind kind;
  std::string_view suffix;  // the end of the name in the file: "attn_q.weight"; static storage
  size_t rows, cols;        // a norm or a bias has one row
  std::string meaning;      // the shape in terms of a file's keys: "head_count * head size x ..."
  // Where it is a part of the file's tensor: its first row there (of a bias: its first element),
  // and how many that has in all, 0 being its own.
  size_t first = 0, of = 0;
  bool shared = false;  // it is another role's tensor, too, which counts it
  // Of such a part: `run` rows each, `step` rows apart; 0: they are one run.
  size_t run = 0, step = 0;
  // Where it is several tensors, which have these rows each: `suffix` has their number in the place
  // of kNumber. 0: it is one.
  size_t each = 0;
  // Which of its layer's blocks in the file it is of: the FFN of some files is a block of its own.
  size_t block = 0;

  size_t tensors() const { return each == 0 ? 1 : rows / each; }
  // The number of the tensor that has row r, and the row there.
  size_t TensorOf(size_t r) const { return each == 0 ? 0 : r / each; }
  size_t RowInFile(size_t r) const {
    if (each != 0) return r % each;
    return first + (run == 0 ? r : r / run * step + r % run);
  }

  bool operator==(const TensorSpec&) const = default;
};

// The operations of a layer. x is the residual; in and hidden are results that the next operation
// uses.
enum class OpKind : uint8_t {
  kNorm,       // in = norm(x) * weight: LayerSpec::norm
  kQkv,        // q, k, v = their matrices * in, plus biases if there are any
  kAttention,  // attention over q and k (normalised per head if there are norms, then rotated) and
               // v
  kO,          // x += O * output of attention
  kGate,       // hidden = gate(gate * in) * (up * in): LayerSpec::gate
  kDown,       // x += down * hidden
  kInput,      // in = x
  kDeltaRule,  // in the place of kAttention: StateKind::kDeltaRule
  kConvolution,  // the same: StateKind::kConvolution
  kMamba2,       // the same: StateKind::kMamba2
  kInputGate,    // hidden = gate(kInputGate * in) * the layer input
  kInputOut      // x += kInputOut * hidden
};

// Biases of O, gate, up and down, if there are any, belong to their products.
struct LayerOp {
  OpKind kind;
  TensorRole norm = TensorRole::kAttnNorm;  // for kNorm: its weight
  // For kO, kDown and kInputOut: the weight of a norm of the product, before it is added to x.
  std::optional<TensorRole> post_norm = {};
  // For the last of those, with a post_norm: what x is multiplied by behind it, a tensor of one
  // number.
  std::optional<TensorRole> output_scale = {};

  bool operator==(const LayerOp&) const = default;
};

// Which elements of a head form a pair in rotary embedding. kInterleaved: (2i, 2i+1), in GGUF's
// `llama` files. kHalves: (i, i + dim/2), in `qwen2` and `qwen3` ("NeoX").
enum class RopePairing : uint8_t { kInterleaved, kHalves };

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,
  kYarn
};  // llama3 scaling is in the rope_freqs tensor

struct RotarySpec {
  RopePairing pairing = RopePairing::kInterleaved;
  size_t dim = 0;  // the first elements of a head, which rotate: all, unless rope.dimension_count
                   // is smaller
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double scale_factor = 1.0;
  size_t original_context = 0;
  double yarn_ext_factor = 1.0, yarn_attn_factor = 1.0, yarn_beta_fast = 32.0, yarn_beta_slow = 1.0;
  std::vector<float> freq_factors;  // rope_freqs.weight: dim/2 values, or empty
  // YaRN's magnitude is (1 + 0.1 ln f) / (1 + 0.1 m ln f), m being this.
  double yarn_log_multiplier = 0.0;
  // LongRoPE (Ding 2024, arXiv 2402.13753): factors for contexts longer than original_context, and
  // what multiplies sines and cosines in either case. ForContext() (model/config/config.h) makes
  // its choice.
  std::vector<float> long_factors;
  double magnitude = 1.0;
  bool yarn_whole_pairs = true;  // YaRN's ramp begins and ends at whole pairs

  bool operator==(const RotarySpec&) const = default;
};

// The norm of residuals, and of what layers add to them: x / rms(x), or LayerNorm, (x - mean) /
// deviation.
enum class NormKind : uint8_t { kRms, kLayer };

// What an FFN makes of gate and up: it multiplies up by silu of gate (SwiGLU, Shazeer 2020), or by
// GELU in its form with tanh; or, kClamped, (up + 1) * gate * sigmoid(1.702 gate), where gate is at
// most 7 and up from -7 to 7. kSquaredRelu: there is no gate, up becomes max(0, up)^2 (So 2021,
// arXiv 2109.08668).
enum class GateKind : uint8_t { kSilu, kGeluTanh, kClamped, kSquaredRelu };

// Norms of q and k, of the layer's NormKind.
enum class QkNorm : uint8_t {
  kNone,
  kHead,           // of each head, before its rotation
  kHeadAfterRope,  // of each head, after its rotation
  kRow,            // of all heads of q together, and of all of k, before rotation
  kEachHead        // as kHead, with weights of its own for each
};

// Queries at position p are multiplied by 1 + beta * ln(1 + floor(p / length)).
struct Temperature {
  double beta = 0.0;
  size_t length = 1;
  double At(size_t position) const;
  bool operator==(const Temperature&) const = default;
};

// The first position that `position` sees in a layer with that window (LayerSpec::window).
constexpr size_t FirstSeen(size_t window, size_t position) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

struct LayerSizes {
  size_t dim = 0;        // elements of the residual; the same in all layers
  size_t ffn = 0;        // feed-forward length
  size_t heads = 0;      // query heads; of the delta rule: value heads
  size_t kv_heads = 0;   // key/value heads; heads % kv_heads == 0; of the delta rule: key heads
  size_t head_size = 0;  // elements of a query, key or value; of the delta rule: of a value

  size_t q_rows() const { return heads * head_size; }
  size_t kv_rows() const { return kv_heads * head_size; }
  size_t group() const { return heads / kv_heads; }  // query heads per KV head
  bool operator==(const LayerSizes&) const = default;
};

// What a layer has in the place of attention: it keeps no keys and values, but a state for each
// head, as large however long the sequence.
//
// kDeltaRule: the gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464), as
// Qwen3-Next and Qwen3.5 have it. Per token, c being a causal convolution over the last `taps`
// tokens, channel by channel, and SiLU of it:
//   q, k, v = c(their matrices * in), each head of q and k divided by its length, q also by
//   sqrt(key_size);  decay = exp(kDecay * softplus(alpha + kDecayBias)),  rate = sigmoid(beta);
//   state = decay * state,  state += k (rate * (v - state^T k))^T,  out = state^T q;
//   what kO takes = rms_norm(out, kHeadNorm) * silu(output gate).
//
// kConvolution: a gated short convolution, as LFM2 has it. B, C and x being what the matrices kQ,
// kK and kV give, each as long as the residual, and c the convolution without SiLU:
//   what kO takes = C * c(B * x).
// Its channels are divided among as many heads as attention has, which is how threads share them.
//
// kMamba2: the state space of Mamba-2 (Dao and Gu 2024, arXiv 2405.21060). C, B, x, z and alpha
// being what kQ, kK, kV, kOutputGate and kAlpha give, c the convolution with kConvolutionBias and
// SiLU, and a group of heads having the C and B of a key head:
//   step = softplus(alpha + kDecayBias), but at least least_step,  decay = exp(kDecay * step);
//   state = decay * state + c(B) (step * c(x))^T,  out = state^T c(C) + kSkip * c(x);
//   what kO takes = rms_norm(out * silu(z), kGroupNorm), over the heads of each group.
enum class StateKind : uint8_t { kNone, kDeltaRule, kConvolution, kMamba2 };

struct Recurrence {
  StateKind kind = StateKind::kNone;  // kNone: the layer has attention
  size_t key_size = 0;                // elements of a query or key, or of a state; kConvolution: 0
  size_t taps = 0;
  // Value head h belongs to key head h % kv_heads; else to h / (heads / kv_heads).
  bool heads_in_turn = false;
  // Where the layer has attention, too: value heads, key heads and elements of a value, those of
  // LayerSizes being attention's. The state's matrices are kStateQ to kStateO.
  size_t heads = 0, key_heads = 0, head_size = 0;
  double least_step = 0.0;  // of kMamba2

  bool any() const { return kind != StateKind::kNone; }
  bool beside_attention() const { return heads != 0; }
  bool operator==(const Recurrence&) const = default;
};

// What a router makes of its products l of an expert's row with `in`: p = softmax(l) over all
// experts, or sigmoid(l).
enum class ExpertGating : uint8_t { kSoftmax, kSigmoid };

// A mixture of experts (Shazeer 2017, arXiv 1701.06538) in place of an FFN. Of each token the
// `used` experts with the largest p (plus kRouterBias, if there is one) are computed, of equal ones
// the lower; w = p, if `normalise` divided by the sum of the chosen ones' p, times `scale`:
//   x += sum over the chosen of w * down(gate(gate * in) * (up * in))
//        + the same of an expert that all tokens share, times its sigmoid, if it has one.
// With groups, which are `count` / `groups` experts each, one after another, they are chosen among
// those of the `groups_used` groups whose two best sum up to most, of equal ones the lower.
// LayerSizes::ffn is the length of an expert.
struct ExpertSpec {
  size_t count = 0;       // 0: the layer has an FFN
  size_t used = 0;        // of a token
  size_t shared_ffn = 0;  // length of the shared expert; 0: none
  ExpertGating gating = ExpertGating::kSoftmax;
  bool normalise = true;
  double scale = 1.0;
  size_t groups = 1, groups_used = 1;
  // As Gemma 4 has them: the shared expert is an FFN whose norm is kFfnNorm, and its gate and the
  // experts' have other inputs. With x as it is before the two,
  //   l = kRouter * (rms_norm(x, kRouterScale) / sqrt(dim)),  w = kExpertScale of the expert * w,
  //   the experts' in = norm(x, kExpertNorm),
  //   x += norm(norm(the shared one's, kPostSharedNorm) + norm(the sum of the chosen ones',
  //             kPostExpertNorm), the post_norm of kDown).
  bool beside_ffn = false;
  bool operator==(const ExpertSpec&) const = default;
};

// Latent attention (DeepSeek-AI 2024, arXiv 2405.04434): all heads' keys and values are made of one
// vector, the latent c, and it alone is cached, with a part r that rotates. Per token,
//   c = rms_norm(the first `rank` rows of kK * in, kLatentNorm),  r = the other rows, rotated;
//   q = kQ * in, or with a query_rank kQ * rms_norm(kQueryDown * in, kQueryDownNorm);
// of q each head has key_size elements n, then rotary.dim elements, rotated: t. Then
//   score = (kKeyUp n) . c + t . r,  out = kValueUp (sum of weights * c).
// So attention has one KV head: its key is r, then c, its value c, and its queries t, then kKeyUp
// n. LayerSizes has these sizes: kv_heads 1, head_size = rotary.dim + rank.
struct LatentSpec {
  size_t rank = 0;        // elements of c; 0: keys and values of their own
  size_t query_rank = 0;  // 0: queries are made of `in`
  size_t key_size = 0;
  size_t value_size = 0;

  bool any() const { return rank != 0; }
  bool operator==(const LatentSpec&) const = default;
};

struct LayerSpec {
  LayerSizes sizes;
  float norm_epsilon = 1e-5f;
  std::vector<TensorSpec> tensors;  // in the order in which a token passes through them
  std::vector<LayerOp> ops;
  RotarySpec rotary;               // dim 0: none
  double attention_divisor = 1.0;  // divides query-key products: sqrt(head size)
  QkNorm qk_norm = QkNorm::kNone;  // they differ in their tensors, too
  Temperature temperature;
  size_t window = 0;  // how many positions a position sees, the last one being itself; 0: all
  NormKind norm = NormKind::kRms;
  GateKind gate = GateKind::kSilu;
  double score_cap = 0.0;  // scores s become cap * tanh(s / cap) before the softmax; 0: they do not
  bool value_norm = false;  // each head of v is divided by its root mean square
  // Attention's output is multiplied by a sigmoid: kQ has for each head its query's rows, then its
  // gate's.
  bool output_gate = false;
  Recurrence recurrence;
  ExpertSpec experts;
  LatentSpec latent;
  // The layer, by its number in the whole model, to whose keys and values this one attends: it has
  // none of its own.
  std::optional<size_t> kv_of;
  // Elements of the layer input, 0: none. Besides the residual x each layer of some models gets a
  // vector of its own, made of the token and of the first x: for layer l, t being the token's row
  // of kInputEmbeddingTensor and p = kInputMatrixTensor * x, of both those elements that are l's,
  //   (rms_norm(p / sqrt(dim), kInputNormTensor) + sqrt(input_size) * t) / sqrt(2).
  size_t input_size = 0;

  bool gated() const { return gate != GateKind::kSquaredRelu; }
  bool has_ffn() const { return Has(TensorRole::kDown); }  // or experts
  bool recurrent() const { return recurrence.any(); }      // it has a state
  bool attends() const { return !recurrent() || recurrence.beside_attention(); }
  // The sizes of the state: those of the layer, unless it has attention, too.
  LayerSizes state_sizes() const;
  size_t groups() const;  // of rows in front of attention or a state: RowsOfHead
  // Elements of what attention sums up for a head; of all heads, and those of a state behind them.
  size_t value_size() const { return latent.any() ? latent.rank : sizes.head_size; }
  size_t attended_size() const;
  size_t output_size() const;                // columns of O
  const TensorSpec* Find(TensorRole) const;  // null if the layer has no such tensor
  bool Has(TensorRole role) const { return Find(role) != nullptr; }
  const TensorSpec& tensor(TensorRole) const;  // the tensor must exist
  uint64_t parameters() const;
  uint64_t matrix_parameters() const;  // parameters of its matrices alone
  // Of these, those that a token's products take.
  uint64_t active_parameters() const;

  // The operations before attention, or what is in its place, and those after it.
  std::span<const LayerOp> BeforeAttention() const;
  std::span<const LayerOp> AfterAttention() const;
  size_t norms() const;  // of vectors of `dim`: kNorm operations, and post_norms

  bool operator==(const LayerSpec&) const = default;
};

// Which optional tensors a file has, and in which form.
struct TensorForms {
  bool qkv_bias = false;  // biases of q, k and v
  bool o_bias = false, gate_up_bias = false, down_bias = false;
  // Tensors that are a part of another: q, k and v of attn_qkv; gate and up of ffn_up.
  bool fused_qkv = false, fused_gate_up = false;
  // The same in runs: gate and up of each expert; betas and alphas of each key head's heads; q, k,
  // v and output gates of each key head's heads.
  bool fused_experts = false, fused_rates = false, fused_state = false;
  bool experts_apart = false;  // each expert's matrices are tensors of their own
  // In layers that may be without V: it is K, before its norm.
  bool value_is_key = false;
  bool qk_norm = false;                           // in families that may have none
  bool router_bias = false, shared_gate = false;  // kRouterBias, kSharedRouter
  bool group_norm = false;                        // kGroupNorm
  bool bare_ffn_norm = false;                     // kFfnNorm is called ffn_norm
  bool operator==(const TensorForms&) const = default;
};

// What a kind of layer is made of.
struct LayerTraits {
  LayerSizes sizes;
  float norm_epsilon = 1e-5f;
  std::span<const LayerOp> ops;
  TensorForms forms;
  QkNorm qk_norm = QkNorm::kNone;
  RotarySpec rotary;
  double attention_divisor = 0.0;  // 0: sqrt(head size)
  Temperature temperature;
  size_t window = 0;  // LayerSpec::window
  NormKind norm = NormKind::kRms;
  GateKind gate = GateKind::kSilu;
  double score_cap = 0.0;
  bool value_norm = false;
  bool output_gate = false;
  Recurrence recurrence;
  ExpertSpec experts;
  LatentSpec latent;
  std::optional<size_t> kv_of;     // LayerSpec::kv_of
  size_t input_size = 0;           // LayerSpec::input_size
  bool sinks = false;              // kSinks
  bool router_logit_bias = false;  // kRouterLogitBias
  bool ffn_apart = false;  // the FFN is a block of its own in the file, and its norm is kAttnNorm's
  struct Renamed {
    TensorRole role;
    std::string_view suffix;
  };
  std::span<const Renamed> renamed;  // tensors that have another name in this family
};
LayerSpec MakeLayerSpec(const LayerTraits&);

std::string_view SuffixOf(TensorRole);

// Rows of a matrix that belong to one KV head.
struct RowsOfRole {
  TensorRole role;
  size_t first, rows;
  bool rotates = false;  // a head whose rows HeadRow() orders
};
// All rows of the matrices in front of attention that belong to a KV head, in the order in which
// they are packed and products lie: its query heads, its key, its value (with kv_of neither), and
// with output_gate the gates of its query heads; of the delta rule: query, key, its value heads,
// their output gates, betas and alphas; of a convolution: its channels' B, C and x; of Mamba-2: C,
// B, its heads' x, z and alphas. Beside attention, a state's groups follow those of KV heads. Of
// latent attention: QueryRows, or with a query_rank kQueryDown; then r and c.
std::vector<RowsOfRole> RowsOfHead(const LayerSpec&, size_t group);
// Of latent attention the rows of kQ: of each head n, then t.
std::vector<RowsOfRole> QueryRows(const LayerSpec&);
// The delta rule's i-th value head of a key head.
size_t ValueHead(const LayerSpec&, size_t key_head, size_t i);
// The number of that value head in the order of key heads, then i.
size_t NthValueHead(const LayerSpec&, size_t value_head);

// Rows of rotary heads are kept so that the two of a pair lie half of the rotated elements apart,
// whatever the file's order: products of queries and keys remain the same sums of the same
// products. Row `r` of such a head is row HeadRow(rotary, r) of the file's head.
size_t HeadRow(const RotarySpec&, size_t r);
// A norm's weights over one head or several, in that order.
std::vector<float> InPackedOrder(const LayerSpec&, const std::vector<float>& weights);

// A tensor's name in a GGUF file: "blk.3.attn_q.weight".
std::string LayerTensor(size_t block, std::string_view suffix);
inline constexpr char kNumber = '*';
// The name of the tensor of that number (TensorSpec::each): "blk.3.ffn_up.7.weight". `block`: the
// layer's first.
std::string LayerTensor(size_t block, const TensorSpec&, size_t number);

}  // namespace larder::model::layer
