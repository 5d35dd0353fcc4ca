// A family of models: what all files of one `general.architecture` have in common, as data. Each
// has a file of its own in this folder, with its provenance, the keys that only it has, and its
// traps; families.cc lists them. No other code knows a family's name.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/layer/layer_spec.h"

namespace larder::model::inline families {

// Where rotary embedding, norms and sums stand is in `ops`; what they are made of, in the rest.
struct Family {
  enum class QkvBias : uint8_t { kAlways, kWhereInFile };

  std::string_view name;  // "llama"
  int number;             // in descriptions (model/config/description.h): never another one's
  RopePairing pairing;
  QkvBias qkv_bias;
  bool qk_norm;  // an RMSNorm of each head of q and k
  std::span<const LayerOp> ops;
};

// All families, the first one being `llama`.
std::span<const Family* const> Families();
// Null if there is none of that name.
const Family* FindFamily(std::string_view name);
// The family must exist.
const Family& FamilyOf(std::string_view name);
// What a known family that is not among them would need, for a message: "sliding windows". Empty:
// the name is not known.
std::string_view MissingIn(std::string_view name);

// Which optional tensors a file has.
struct TensorForms {
  bool qkv_bias = false;  // biases of q, k and v
};

// The pairing is the family's; the other fields of the rotation are kept.
LayerSpec MakeLayerSpec(const Family&, const LayerSizes&, float norm_epsilon, const TensorForms&,
                        RotarySpec);

// Each norm precedes the block whose input it normalises; O and down add to the residual.
inline constexpr LayerOp kPreNorm[] = {{OpKind::kRmsNorm, TensorRole::kAttnNorm},
                                       {OpKind::kQkv},
                                       {OpKind::kAttention},
                                       {OpKind::kO},
                                       {OpKind::kRmsNorm, TensorRole::kFfnNorm},
                                       {OpKind::kSiluGate},
                                       {OpKind::kDown}};

extern const Family kLlama, kQwen2, kQwen3;

}  // namespace larder::model::families
