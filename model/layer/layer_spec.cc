#include "model/layer/layer_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "base/check.h"

namespace larder::model::inline layer {
namespace {

// The factors of shapes.
enum class Length : uint8_t {
  kOne,
  kDim,
  kQ,
  kKv,
  kHead,
  kFfn,
  kHeads,
  kQGate,
  kKeys,
  kTaps,
  kConv,
  kGroups,
  kOfGroup,
  kExperts,
  kShared,
  kQueryHeads,
  kKeyHeads,
  kQueryRank,
  kRank,
  kOfQueries,
  kCached,
  kKeysUp,
  kKeySize,
  kValues,
  kInput
};
// Which layers have a tensor.
enum class If : uint8_t {
  kAlways,
  kQkvBias,
  kQkNorm,
  kOBias,
  kGateUpBias,
  kDownBias,
  kNorm,
  kState,
  kHeads,
  kDelta,
  kMamba2,
  kExperts,
  kRouterBias,
  kShared,
  kSharedGate,
  kGroupNorm,
  kBeside,
  kSinks,
  kLogitBias,
  kNotLatent,
  kLatent,
  kQueryRank,
  kInput,
  kBesideFfn
};

struct Row {
  TensorRole role;
  TensorKind kind;
  std::string_view suffix;
  Length rows, cols;
  If present = If::kAlways;
};
// In the order of TensorRole, since SuffixOf() uses roles as indices.
constexpr std::array<Row, kTensorRoles> kTensors = {{
    {TensorRole::kAttnNorm, TensorKind::kNorm, "attn_norm.weight", Length::kOne, Length::kDim,
     If::kNorm},
    {TensorRole::kQ, TensorKind::kMatrix, "attn_q.weight", Length::kQ, Length::kDim},
    {TensorRole::kK, TensorKind::kMatrix, "attn_k.weight", Length::kKv, Length::kDim},
    {TensorRole::kV, TensorKind::kMatrix, "attn_v.weight", Length::kKv, Length::kDim,
     If::kNotLatent},
    {TensorRole::kQBias, TensorKind::kBias, "attn_q.bias", Length::kOne, Length::kQ, If::kQkvBias},
    {TensorRole::kKBias, TensorKind::kBias, "attn_k.bias", Length::kOne, Length::kKv, If::kQkvBias},
    {TensorRole::kVBias, TensorKind::kBias, "attn_v.bias", Length::kOne, Length::kKv, If::kQkvBias},
    {TensorRole::kQNorm, TensorKind::kNorm, "attn_q_norm.weight", Length::kOne, Length::kHead,
     If::kQkNorm},
    {TensorRole::kKNorm, TensorKind::kNorm, "attn_k_norm.weight", Length::kOne, Length::kHead,
     If::kQkNorm},
    {TensorRole::kO, TensorKind::kMatrix, "attn_output.weight", Length::kDim, Length::kQ},
    {TensorRole::kFfnNorm, TensorKind::kNorm, "ffn_norm.weight", Length::kOne, Length::kDim,
     If::kNorm},
    {TensorRole::kGate, TensorKind::kMatrix, "ffn_gate.weight", Length::kFfn, Length::kDim},
    {TensorRole::kUp, TensorKind::kMatrix, "ffn_up.weight", Length::kFfn, Length::kDim},
    {TensorRole::kDown, TensorKind::kMatrix, "ffn_down.weight", Length::kDim, Length::kFfn},
    {TensorRole::kOBias, TensorKind::kBias, "attn_output.bias", Length::kOne, Length::kDim,
     If::kOBias},
    {TensorRole::kDownBias, TensorKind::kBias, "ffn_down.bias", Length::kOne, Length::kDim,
     If::kDownBias},
    {TensorRole::kPostAttnNorm, TensorKind::kNorm, "post_attention_norm.weight", Length::kOne,
     Length::kDim, If::kNorm},
    {TensorRole::kPostFfnNorm, TensorKind::kNorm, "post_ffw_norm.weight", Length::kOne,
     Length::kDim, If::kNorm},
    {TensorRole::kGateBias, TensorKind::kBias, "ffn_gate.bias", Length::kOne, Length::kFfn,
     If::kGateUpBias},
    {TensorRole::kUpBias, TensorKind::kBias, "ffn_up.bias", Length::kOne, Length::kFfn,
     If::kGateUpBias},
    {TensorRole::kOutputScale, TensorKind::kNorm, "layer_output_scale.weight", Length::kOne,
     Length::kOne, If::kNorm},
    {TensorRole::kOutputGate, TensorKind::kMatrix, "attn_gate.weight", Length::kQ, Length::kDim,
     If::kHeads},
    {TensorRole::kAlpha, TensorKind::kMatrix, "ssm_alpha.weight", Length::kHeads, Length::kDim,
     If::kHeads},
    {TensorRole::kBeta, TensorKind::kMatrix, "ssm_beta.weight", Length::kHeads, Length::kDim,
     If::kDelta},
    {TensorRole::kConvolution, TensorKind::kTable, "ssm_conv1d.weight", Length::kConv,
     Length::kTaps, If::kState},
    {TensorRole::kDecay, TensorKind::kTable, "ssm_a", Length::kOne, Length::kHeads, If::kHeads},
    {TensorRole::kDecayBias, TensorKind::kTable, "ssm_dt.bias", Length::kOne, Length::kHeads,
     If::kHeads},
    {TensorRole::kHeadNorm, TensorKind::kNorm, "ssm_norm.weight", Length::kOne, Length::kHead,
     If::kDelta},
    {TensorRole::kConvolutionBias, TensorKind::kTable, "ssm_conv1d.bias", Length::kOne,
     Length::kConv, If::kMamba2},
    {TensorRole::kSkip, TensorKind::kTable, "ssm_d", Length::kHeads, Length::kOne, If::kMamba2},
    {TensorRole::kGroupNorm, TensorKind::kTable, "ssm_norm.weight", Length::kGroups,
     Length::kOfGroup, If::kGroupNorm},
    {TensorRole::kRouter, TensorKind::kTable, "ffn_gate_inp.weight", Length::kExperts, Length::kDim,
     If::kExperts},
    {TensorRole::kRouterBias, TensorKind::kTable, "exp_probs_b.bias", Length::kOne,
     Length::kExperts, If::kRouterBias},
    {TensorRole::kSharedGate, TensorKind::kMatrix, "ffn_gate_shexp.weight", Length::kShared,
     Length::kDim, If::kShared},
    {TensorRole::kSharedUp, TensorKind::kMatrix, "ffn_up_shexp.weight", Length::kShared,
     Length::kDim, If::kShared},
    {TensorRole::kSharedDown, TensorKind::kMatrix, "ffn_down_shexp.weight", Length::kDim,
     Length::kShared, If::kShared},
    {TensorRole::kSharedRouter, TensorKind::kTable, "ffn_gate_inp_shexp.weight", Length::kOne,
     Length::kDim, If::kSharedGate},
    {TensorRole::kStateQ, TensorKind::kMatrix, "ssm_in.weight", Length::kKeys, Length::kDim,
     If::kBeside},
    {TensorRole::kStateK, TensorKind::kMatrix, "ssm_in.weight", Length::kKeys, Length::kDim,
     If::kBeside},
    {TensorRole::kStateV, TensorKind::kMatrix, "ssm_in.weight", Length::kQ, Length::kDim,
     If::kBeside},
    {TensorRole::kStateO, TensorKind::kMatrix, "ssm_out.weight", Length::kDim, Length::kQ,
     If::kBeside},
    {TensorRole::kSinks, TensorKind::kTable, "attn_sinks.weight", Length::kOne, Length::kQueryHeads,
     If::kSinks},
    {TensorRole::kRouterLogitBias, TensorKind::kTable, "ffn_gate_inp.bias", Length::kOne,
     Length::kExperts, If::kLogitBias},
    {TensorRole::kQueryDown, TensorKind::kMatrix, "attn_q_a.weight", Length::kQueryRank,
     Length::kDim, If::kQueryRank},
    {TensorRole::kQueryDownNorm, TensorKind::kNorm, "attn_q_a_norm.weight", Length::kOne,
     Length::kQueryRank, If::kQueryRank},
    {TensorRole::kLatentNorm, TensorKind::kNorm, "attn_kv_a_norm.weight", Length::kOne,
     Length::kRank, If::kLatent},
    {TensorRole::kKeyUp, TensorKind::kMatrix, "attn_k_b.weight", Length::kKeysUp, Length::kKeySize,
     If::kLatent},
    {TensorRole::kValueUp, TensorKind::kMatrix, "attn_v_b.weight", Length::kValues, Length::kRank,
     If::kLatent},
    {TensorRole::kInputGate, TensorKind::kMatrix, "inp_gate.weight", Length::kInput, Length::kDim,
     If::kInput},
    {TensorRole::kInputOut, TensorKind::kMatrix, "proj.weight", Length::kDim, Length::kInput,
     If::kInput},
    {TensorRole::kPostInputNorm, TensorKind::kNorm, "post_norm.weight", Length::kOne, Length::kDim,
     If::kNorm},
    {TensorRole::kExpertNorm, TensorKind::kNorm, "pre_ffw_norm_2.weight", Length::kOne,
     Length::kDim, If::kBesideFfn},
    {TensorRole::kRouterScale, TensorKind::kNorm, "ffn_gate_inp.scale", Length::kOne, Length::kDim,
     If::kBesideFfn},
    {TensorRole::kExpertScale, TensorKind::kTable, "ffn_down_exps.scale", Length::kOne,
     Length::kExperts, If::kBesideFfn},
    {TensorRole::kPostSharedNorm, TensorKind::kNorm, "post_ffw_norm_1.weight", Length::kOne,
     Length::kDim, If::kBesideFfn},
    {TensorRole::kPostExpertNorm, TensorKind::kNorm, "post_ffw_norm_2.weight", Length::kOne,
     Length::kDim, If::kBesideFfn},
}};
static_assert([] {
  for (size_t i = 0; i < kTensorRoles; ++i) {
    if (static_cast<size_t>(kTensors[i].role) != i) return false;
  }
  return true;
}());

size_t ElementsOf(Length length, const LayerTraits& traits) {
  const LayerSizes& sizes = traits.sizes;
  switch (length) {
    case Length::kOne:
      return 1;
    case Length::kDim:
      return sizes.dim;
    case Length::kQ:
      return sizes.q_rows();
    case Length::kKv:
      return sizes.kv_rows();
    case Length::kHead:
      return sizes.head_size;
    case Length::kFfn:
      return sizes.ffn;
    case Length::kHeads:
    case Length::kQueryHeads:
      return sizes.heads;
    case Length::kQGate:
      return 2 * sizes.q_rows();
    case Length::kKeys:
      return sizes.kv_heads * traits.recurrence.key_size;
    case Length::kTaps:
      return traits.recurrence.taps;
    case Length::kConv:
      return 2 * sizes.kv_heads * traits.recurrence.key_size + sizes.q_rows();
    case Length::kGroups:
    case Length::kKeyHeads:
      return sizes.kv_heads;
    case Length::kOfGroup:
      return sizes.q_rows() / sizes.kv_heads;
    case Length::kExperts:
      return traits.experts.count;
    case Length::kShared:
      return traits.experts.shared_ffn;
    case Length::kQueryRank:
      return traits.latent.query_rank;
    case Length::kRank:
      return traits.latent.rank;
    case Length::kOfQueries:
      return sizes.heads * (traits.latent.key_size + traits.rotary.dim);
    case Length::kCached:
      return traits.latent.rank + traits.rotary.dim;
    case Length::kKeysUp:
      return sizes.heads * traits.latent.rank;
    case Length::kKeySize:
      return traits.latent.key_size;
    case Length::kValues:
      return sizes.heads * traits.latent.value_size;
    case Length::kInput:
      return traits.input_size;
  }
  return 0;
}

// Whether such states have heads with a decay each: matrices, not only rows.
bool HasHeads(StateKind kind) {
  return kind == StateKind::kDeltaRule || kind == StateKind::kMamba2;
}

const char* KeysOf(Length length, StateKind kind, bool experts) {
  const bool delta = HasHeads(kind);
  switch (length) {
    case Length::kOne:
      return "1";
    case Length::kDim:
      return "embedding_length";
    case Length::kQ:
      return delta                             ? "ssm.inner_size"
             : kind == StateKind::kConvolution ? "embedding_length"
                                               : "head_count * head size";
    case Length::kKv:
      return kind == StateKind::kConvolution ? "embedding_length" : "head_count_kv * head size";
    case Length::kHead:
      return delta ? "ssm.inner_size / ssm.time_step_rank" : "head size";
    case Length::kFfn:
      return experts ? "length of an expert" : "feed_forward_length";
    case Length::kHeads:
      return "ssm.time_step_rank";
    case Length::kQueryHeads:
      return "head_count";
    case Length::kKeyHeads:
      return "head_count_kv";
    case Length::kQGate:
      return "2 * head_count * head size";
    case Length::kKeys:
      return "ssm.group_count * ssm.state_size";
    case Length::kTaps:
      return delta ? "ssm.conv_kernel" : "shortconv.l_cache";
    case Length::kConv:
      return "2 * ssm.group_count * ssm.state_size + ssm.inner_size";
    case Length::kGroups:
      return "ssm.group_count";
    case Length::kOfGroup:
      return "ssm.inner_size / ssm.group_count";
    case Length::kExperts:
      return "expert_count";
    case Length::kShared:
      return "length of the shared expert";
    case Length::kQueryRank:
      return "attention.q_lora_rank";
    case Length::kRank:
      return "attention.kv_lora_rank";
    case Length::kOfQueries:
      return "head_count * attention.key_length_mla";
    case Length::kCached:
      return "attention.kv_lora_rank + rope.dimension_count";
    case Length::kKeysUp:
      return "head_count * attention.kv_lora_rank";
    case Length::kKeySize:
      return "attention.key_length_mla - rope.dimension_count";
    case Length::kValues:
      return "head_count * attention.value_length_mla";
    case Length::kInput:
      return "embedding_length_per_layer_input";
  }
  return "";
}

bool IsOfFfn(TensorRole role) {
  using enum TensorRole;
  switch (role) {
    case kFfnNorm:
    case kGate:
    case kUp:
    case kDown:
    case kGateBias:
    case kUpBias:
    case kDownBias:
    case kRouter:
    case kRouterBias:
    case kRouterLogitBias:
    case kSharedGate:
    case kSharedUp:
    case kSharedDown:
    case kSharedRouter:
      return true;
    default:
      return false;
  }
}

bool IsOfKeysAndValues(TensorRole role) {
  using enum TensorRole;
  return role == kK || role == kV || role == kKBias || role == kVBias || role == kKNorm;
}

bool IsPresent(const Row& row, const LayerTraits& traits) {
  if (traits.kv_of && IsOfKeysAndValues(row.role)) return false;
  const bool of_gate = row.role == TensorRole::kGate || row.role == TensorRole::kGateBias ||
                       row.role == TensorRole::kSharedGate;
  if (of_gate && traits.gate == GateKind::kSquaredRelu) return false;
  const bool has_ffn =
      std::ranges::find(traits.ops, OpKind::kDown, &LayerOp::kind) != traits.ops.end();
  if (IsOfFfn(row.role) && !has_ffn) return false;
  switch (row.present) {
    case If::kAlways:
      return true;
    case If::kQkvBias:
      return traits.forms.qkv_bias;
    case If::kQkNorm:
      return traits.qk_norm != QkNorm::kNone;
    case If::kOBias:
      return traits.forms.o_bias;
    case If::kGateUpBias:
      return traits.forms.gate_up_bias;
    case If::kDownBias:
      return traits.forms.down_bias;
    case If::kNorm:
      return std::ranges::any_of(traits.ops, [&](const LayerOp& op) {
        return (op.kind == OpKind::kNorm && op.norm == row.role) || op.post_norm == row.role ||
               op.output_scale == row.role;
      });
    case If::kState:
      return traits.recurrence.any();
    case If::kHeads:
      return HasHeads(traits.recurrence.kind);
    case If::kMamba2:
      return traits.recurrence.kind == StateKind::kMamba2;
    case If::kGroupNorm:
      return traits.recurrence.kind == StateKind::kMamba2 && traits.forms.group_norm;
    case If::kBeside:
      return traits.recurrence.beside_attention();
    case If::kDelta:
      return traits.recurrence.kind == StateKind::kDeltaRule;
    case If::kExperts:
      return traits.experts.count != 0;
    case If::kRouterBias:
      return traits.experts.count != 0 && traits.forms.router_bias;
    case If::kShared:
      return traits.experts.shared_ffn != 0;
    case If::kSharedGate:
      return traits.experts.shared_ffn != 0 && traits.forms.shared_gate;
    case If::kSinks:
      return traits.sinks;
    case If::kNotLatent:
      return !traits.latent.any();
    case If::kLatent:
      return traits.latent.any();
    case If::kQueryRank:
      return traits.latent.query_rank != 0;
    case If::kInput:
      return traits.input_size != 0;
    case If::kBesideFfn:
      return traits.experts.beside_ffn;
    case If::kLogitBias:
      return traits.experts.count != 0 && traits.router_logit_bias;
  }
  return false;
}

Length RowsOf(const Row& row, const LayerTraits& traits) {
  const bool delta = HasHeads(traits.recurrence.kind) && !traits.recurrence.beside_attention();
  if (row.role == TensorRole::kQ && traits.latent.any()) return Length::kOfQueries;
  if (row.role == TensorRole::kK && traits.latent.any()) return Length::kCached;
  if (row.role == TensorRole::kQ) {
    return delta ? Length::kKeys : traits.output_gate ? Length::kQGate : Length::kQ;
  }
  if (delta && row.role == TensorRole::kK) return Length::kKeys;
  if (delta && row.role == TensorRole::kV) return Length::kQ;
  if (traits.recurrence.kind == StateKind::kConvolution && row.role == TensorRole::kConvolution)
    return Length::kQ;
  if (traits.recurrence.kind == StateKind::kMamba2 && row.role == TensorRole::kDecay)
    return Length::kHeads;
  if (row.present == If::kQkNorm && traits.qk_norm == QkNorm::kEachHead)
    return row.role == TensorRole::kQNorm ? Length::kQueryHeads : Length::kKeyHeads;
  return row.rows;
}

Length ColsOf(const Row& row, const LayerTraits& traits) {
  if (traits.recurrence.kind == StateKind::kMamba2 && row.role == TensorRole::kDecay)
    return Length::kOne;
  if (row.role == TensorRole::kQ && traits.latent.query_rank != 0) return Length::kQueryRank;
  if (row.role == TensorRole::kO && traits.latent.any()) return Length::kValues;
  if (row.present != If::kQkNorm || traits.qk_norm != QkNorm::kRow) return row.cols;
  return row.role == TensorRole::kQNorm ? Length::kQ : Length::kKv;
}

// Where a tensor has another name in layers with such a state; else empty.
std::string_view NameIn(StateKind kind, TensorRole role) {
  const bool is_convolution = kind == StateKind::kConvolution;
  if (role == TensorRole::kO && kind != StateKind::kNone)
    return is_convolution ? "shortconv.out_proj.weight" : "ssm_out.weight";
  if (role == TensorRole::kConvolution && is_convolution) return "shortconv.conv.weight";
  return {};
}

// Whether a tensor is there for the sake of a state.
bool IsOfState(If present) {
  return present == If::kState || present == If::kHeads || present == If::kDelta ||
         present == If::kMamba2 || present == If::kGroupNorm || present == If::kBeside;
}

LayerSizes StateSizesOf(const LayerSizes& sizes, const Recurrence& recurrence) {
  if (!recurrence.beside_attention()) return sizes;
  return {.dim = sizes.dim,
          .ffn = sizes.ffn,
          .heads = recurrence.heads,
          .kv_heads = recurrence.key_heads,
          .head_size = recurrence.head_size};
}

bool IsMixer(const LayerOp& op) {
  return op.kind == OpKind::kAttention || op.kind == OpKind::kDeltaRule ||
         op.kind == OpKind::kConvolution || op.kind == OpKind::kMamba2;
}

// These tensors are one in the file, in that order.
void Fuse(LayerSpec& spec, std::initializer_list<TensorRole> roles, std::string_view suffix) {
  size_t all = 0;
  for (const bool counting : {true, false}) {
    size_t first = 0;
    for (const TensorRole role : roles) {
      TensorSpec& tensor = *std::ranges::find(spec.tensors, role, &TensorSpec::role);
      const size_t own = tensor.kind == TensorKind::kMatrix ? tensor.rows : tensor.cols;
      if (!counting) {
        tensor.suffix = suffix;
        tensor.first = first;
        tensor.of = all;
      }
      first += own;
    }
    all = first;
  }
}

// These matrices are one in the file: of each of `groups` equal parts of theirs the rows of the
// first, then those of the next.
void FuseByGroup(LayerSpec& spec, std::initializer_list<TensorRole> roles, size_t groups,
                 std::string_view suffix) {
  Fuse(spec, roles, suffix);
  for (const TensorRole role : roles) {
    TensorSpec& tensor = *std::ranges::find(spec.tensors, role, &TensorSpec::role);
    tensor.run = tensor.rows / groups;
    tensor.step = tensor.of / groups;
    tensor.first /= groups;
  }
}

// The matrices of all experts, one after another, or a row of biases for each.
void Multiply(TensorSpec& tensor, size_t experts, bool apart) {
  switch (tensor.role) {
    case TensorRole::kGate:
      tensor.suffix = apart ? "ffn_gate.*.weight" : "ffn_gate_exps.weight";
      break;
    case TensorRole::kUp:
      tensor.suffix = apart ? "ffn_up.*.weight" : "ffn_up_exps.weight";
      break;
    case TensorRole::kDown:
      tensor.suffix = apart ? "ffn_down.*.weight" : "ffn_down_exps.weight";
      break;
    case TensorRole::kGateBias:
      tensor.suffix = "ffn_gate_exps.bias";
      break;
    case TensorRole::kUpBias:
      tensor.suffix = "ffn_up_exps.bias";
      break;
    case TensorRole::kDownBias:
      tensor.suffix = "ffn_down_exps.bias";
      break;
    default:
      return;
  }
  const bool is_bias = tensor.kind == TensorKind::kBias;
  if (apart && !is_bias) tensor.each = tensor.rows;
  tensor.rows *= experts;
  tensor.meaning = (is_bias ? "expert_count x " : "expert_count * ") + tensor.meaning;
}

}  // namespace

LayerSpec MakeLayerSpec(const LayerTraits& traits) {
  LayerSpec spec;
  spec.sizes = traits.sizes;
  spec.norm_epsilon = traits.norm_epsilon;
  LayerTraits of_state = traits;
  of_state.sizes = StateSizesOf(traits.sizes, traits.recurrence);
  for (const Row& row : kTensors) {
    if (!IsPresent(row, traits)) continue;
    const bool attention = traits.recurrence.beside_attention() && !IsOfState(row.present);
    const LayerTraits& of = attention ? traits : of_state;
    const StateKind kind = attention ? StateKind::kNone : traits.recurrence.kind;
    const bool experts = traits.experts.count != 0;
    const Length rows = RowsOf(row, traits), cols = ColsOf(row, traits);
    TensorSpec& tensor = spec.tensors.emplace_back(TensorSpec{
        .role = row.role,
        .kind = row.kind,
        .suffix = row.suffix,
        .rows = ElementsOf(rows, of),
        .cols = ElementsOf(cols, of),
        .meaning = rows == Length::kOne ? KeysOf(cols, kind, experts)
                                        : fmt::format("{} x {}", KeysOf(rows, kind, experts),
                                                      KeysOf(cols, kind, experts))});
    if (const std::string_view name = NameIn(kind, row.role); !name.empty()) tensor.suffix = name;
    if (experts) Multiply(tensor, traits.experts.count, traits.forms.experts_apart);
    if (row.role == TensorRole::kQ && traits.latent.query_rank != 0)
      tensor.suffix = "attn_q_b.weight";
    if (row.role == TensorRole::kK && traits.latent.any()) tensor.suffix = "attn_kv_a_mqa.weight";
    for (const LayerTraits::Renamed& other : traits.renamed)
      if (other.role == row.role) tensor.suffix = other.suffix;
  }
  for (TensorSpec& tensor : spec.tensors) {
    if (!traits.ffn_apart || !IsOfFfn(tensor.role)) continue;
    tensor.block = 1;
    if (tensor.role == TensorRole::kFfnNorm) tensor.suffix = SuffixOf(TensorRole::kAttnNorm);
  }
  spec.recurrence = traits.recurrence;
  for (TensorSpec& tensor : spec.tensors)
    if (traits.forms.bare_ffn_norm && tensor.role == TensorRole::kFfnNorm)
      tensor.suffix = "ffn_norm";
  spec.output_gate = traits.output_gate;
  if (traits.forms.value_is_key) {
    for (TensorSpec& tensor : spec.tensors) {
      if (tensor.role != TensorRole::kV) continue;
      tensor.suffix = SuffixOf(TensorRole::kK);
      tensor.shared = true;
    }
  }
  if (spec.recurrence.kind == StateKind::kMamba2) {
    using enum TensorRole;
    if (spec.attends()) {
      Fuse(spec, {kOutputGate, kStateV, kStateK, kStateQ, kAlpha}, "ssm_in.weight");
    } else {
      Fuse(spec, {kOutputGate, kV, kK, kQ, kAlpha}, "ssm_in.weight");
    }
  }
  // Converters that left heads in their order left these as they were, too.
  const bool by_key_head =
      spec.recurrence.kind == StateKind::kDeltaRule && !spec.recurrence.heads_in_turn;
  if (by_key_head && traits.forms.fused_rates)
    FuseByGroup(spec, {TensorRole::kBeta, TensorRole::kAlpha}, traits.sizes.kv_heads,
                "ssm_ba.weight");
  if (by_key_head && traits.forms.fused_state) {
    FuseByGroup(spec, {TensorRole::kQ, TensorRole::kK, TensorRole::kV, TensorRole::kOutputGate},
                traits.sizes.kv_heads, "ssm_in.weight");
  } else if ((traits.forms.fused_qkv && spec.attends()) ||
             (spec.recurrent() && spec.recurrence.kind != StateKind::kMamba2)) {
    Fuse(spec, {TensorRole::kQ, TensorRole::kK, TensorRole::kV},
         spec.recurrence.kind == StateKind::kConvolution ? "shortconv.in_proj.weight"
                                                         : "attn_qkv.weight");
    if (traits.forms.qkv_bias)
      Fuse(spec, {TensorRole::kQBias, TensorRole::kKBias, TensorRole::kVBias}, "attn_qkv.bias");
  }
  if (traits.forms.fused_experts && traits.experts.count != 0)
    FuseByGroup(spec, {TensorRole::kGate, TensorRole::kUp}, traits.experts.count,
                "ffn_gate_up_exps.weight");
  if (traits.forms.fused_gate_up) {
    Fuse(spec, {TensorRole::kGate, TensorRole::kUp}, SuffixOf(TensorRole::kUp));
    if (traits.forms.gate_up_bias)
      Fuse(spec, {TensorRole::kGateBias, TensorRole::kUpBias}, SuffixOf(TensorRole::kUpBias));
  }
  spec.ops.assign(traits.ops.begin(), traits.ops.end());
  spec.rotary = traits.rotary;
  spec.attention_divisor = traits.attention_divisor != 0.0
                               ? traits.attention_divisor
                               : std::sqrt(static_cast<double>(traits.sizes.head_size));
  spec.qk_norm = traits.qk_norm;
  spec.temperature = traits.temperature;
  spec.window = traits.window;
  spec.norm = traits.norm;
  spec.gate = traits.gate;
  spec.score_cap = traits.score_cap;
  spec.value_norm = traits.value_norm;
  spec.experts = traits.experts;
  spec.latent = traits.latent;
  spec.kv_of = traits.kv_of;
  spec.input_size = traits.input_size;
  return spec;
}

const TensorSpec* LayerSpec::Find(TensorRole role) const {
  const auto found = std::ranges::find(tensors, role, &TensorSpec::role);
  return found == tensors.end() ? nullptr : &*found;
}

const TensorSpec& LayerSpec::tensor(TensorRole role) const {
  const TensorSpec* found = Find(role);
  LARDER_CHECK(found != nullptr, "a layer without {}", SuffixOf(role));
  return *found;
}

uint64_t LayerSpec::parameters() const {
  uint64_t sum = 0;
  for (const TensorSpec& tensor : tensors)
    if (!tensor.shared) sum += static_cast<uint64_t>(tensor.rows) * tensor.cols;
  return sum;
}

uint64_t LayerSpec::matrix_parameters() const {
  uint64_t sum = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.kind == TensorKind::kMatrix && !tensor.shared)
      sum += static_cast<uint64_t>(tensor.rows) * tensor.cols;
  }
  return sum;
}

uint64_t LayerSpec::active_parameters() const {
  uint64_t idle = 0;
  for (const TensorRole role : {TensorRole::kGate, TensorRole::kUp, TensorRole::kDown}) {
    if (experts.count == 0 || !Has(role)) continue;
    const TensorSpec& all = tensor(role);
    idle +=
        static_cast<uint64_t>(all.rows) * all.cols / experts.count * (experts.count - experts.used);
  }
  return matrix_parameters() - idle;
}

std::span<const LayerOp> LayerSpec::BeforeAttention() const {
  const auto first = std::ranges::find_if(ops, IsMixer);
  return std::span(ops).first(static_cast<size_t>(first - ops.begin()));
}

std::span<const LayerOp> LayerSpec::AfterAttention() const {
  std::span<const LayerOp> after = std::span(ops).subspan(BeforeAttention().size());
  while (!after.empty() && IsMixer(after.front())) after = after.subspan(1);
  return after;
}

LayerSizes LayerSpec::state_sizes() const { return StateSizesOf(sizes, recurrence); }

size_t LayerSpec::groups() const {
  return sizes.kv_heads + (recurrence.beside_attention() ? recurrence.key_heads : 0);
}

size_t LayerSpec::attended_size() const {
  return sizes.heads * value_size() + (recurrence.beside_attention() ? state_sizes().q_rows() : 0);
}

size_t LayerSpec::output_size() const {
  return latent.any() ? sizes.heads * latent.value_size : attended_size();
}

size_t LayerSpec::norms() const {
  size_t count = 0;
  for (const LayerOp& op : ops) count += (op.kind == OpKind::kNorm) + op.post_norm.has_value();
  return count;
}

double Temperature::At(size_t position) const {
  const size_t lengths = position / length;  // whole ones
  return 1.0 + beta * std::log(1.0 + static_cast<double>(lengths));
}

std::string_view SuffixOf(TensorRole role) { return kTensors[static_cast<size_t>(role)].suffix; }

size_t HeadRow(const RotarySpec& rotary, size_t r) {
  if (rotary.pairing == RopePairing::kHalves || r >= rotary.dim) return r;
  const size_t half = rotary.dim / 2;
  return r < half ? 2 * r : 2 * (r - half) + 1;
}

std::vector<float> InPackedOrder(const LayerSpec& layer, const std::vector<float>& weights) {
  std::vector<float> packed(weights.size());
  const size_t head_size = layer.sizes.head_size;
  for (size_t i = 0; i < weights.size(); ++i)
    packed[i] = weights[i / head_size * head_size + HeadRow(layer.rotary, i % head_size)];
  return packed;
}

std::vector<RowsOfRole> QueryRows(const LayerSpec& layer) {
  const size_t n = layer.latent.key_size, t = layer.rotary.dim;
  std::vector<RowsOfRole> rows;
  for (size_t h = 0; h < layer.sizes.heads; ++h) {
    rows.push_back({TensorRole::kQ, h * (n + t), n});
    rows.push_back({TensorRole::kQ, h * (n + t) + n, t, true});
  }
  return rows;
}

std::vector<RowsOfRole> RowsOfHead(const LayerSpec& layer, size_t group) {
  std::vector<RowsOfRole> rows;
  if (layer.latent.any()) {
    const size_t query_rank = layer.latent.query_rank;
    if (query_rank != 0) {
      rows.push_back({TensorRole::kQueryDown, 0, query_rank});
    } else {
      rows = QueryRows(layer);
    }
    rows.push_back({TensorRole::kK, layer.latent.rank, layer.rotary.dim, true});
    rows.push_back({TensorRole::kK, 0, layer.latent.rank});
    return rows;
  }
  if (layer.attends() && group < layer.sizes.kv_heads) {
    const LayerSizes& sizes = layer.sizes;
    const size_t queries = sizes.group(), size = sizes.head_size;
    const size_t stride = layer.output_gate ? 2 * size : size;
    for (size_t h = group * queries; h < (group + 1) * queries; ++h)
      rows.push_back({TensorRole::kQ, h * stride, size, true});
    if (!layer.kv_of) {
      rows.push_back({TensorRole::kK, group * size, size, true});
      rows.push_back({TensorRole::kV, group * size, size});
    }
    for (size_t h = group * queries; layer.output_gate && h < (group + 1) * queries; ++h)
      rows.push_back({TensorRole::kQ, h * stride + size, size});
    return rows;
  }
  const LayerSizes sizes = layer.state_sizes();
  const size_t size = sizes.head_size;
  const bool beside = layer.recurrence.beside_attention();
  const TensorRole q = beside ? TensorRole::kStateQ : TensorRole::kQ;
  const TensorRole k = beside ? TensorRole::kStateK : TensorRole::kK;
  const TensorRole v = beside ? TensorRole::kStateV : TensorRole::kV;
  const size_t key_head = beside ? group - layer.sizes.kv_heads : group;
  if (layer.recurrence.kind == StateKind::kConvolution) {
    for (const TensorRole role : {q, k, v}) rows.push_back({role, key_head * size, size});
    return rows;
  }
  for (const TensorRole role : {q, k})
    rows.push_back({role, key_head * layer.recurrence.key_size, layer.recurrence.key_size});
  for (const TensorRole role :
       {v, TensorRole::kOutputGate, TensorRole::kBeta, TensorRole::kAlpha}) {
    if (!layer.Has(role)) continue;
    const size_t of_head = role == v || role == TensorRole::kOutputGate ? size : 1;
    for (size_t i = 0; i < sizes.group(); ++i)
      rows.push_back({role, ValueHead(layer, key_head, i) * of_head, of_head});
  }
  return rows;
}

size_t ValueHead(const LayerSpec& layer, size_t key_head, size_t i) {
  const LayerSizes sizes = layer.state_sizes();
  return layer.recurrence.heads_in_turn ? key_head + i * sizes.kv_heads
                                        : key_head * sizes.group() + i;
}

size_t NthValueHead(const LayerSpec& layer, size_t value_head) {
  const LayerSizes sizes = layer.state_sizes();
  return layer.recurrence.heads_in_turn
             ? value_head % sizes.kv_heads * sizes.group() + value_head / sizes.kv_heads
             : value_head;
}

std::string LayerTensor(size_t block, std::string_view suffix) {
  return fmt::format("blk.{}.{}", block, suffix);
}

std::string LayerTensor(size_t block, const TensorSpec& tensor, size_t number) {
  std::string name = LayerTensor(block + tensor.block, tensor.suffix);
  if (tensor.each != 0) name.replace(name.find(kNumber), 1, fmt::format("{}", number));
  return name;
}

}  // namespace larder::model::layer
