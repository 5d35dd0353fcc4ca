#include "model/synth/synth_types.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace larder::model::inline synth {
namespace {

// The number of file_type for MXFP4 is llama.cpp's MXFP4_MOE; it has none for dense models.
constexpr NamedMatrixTypes kAll[] = {
    {"f32", TensorType::kF32, 0},
    {"f16", TensorType::kF16, 1},
    {"bf16", TensorType::kBF16, 32},
    {"q8_0", TensorType::kQ8_0, 7},
    {"q4_0", TensorType::kQ4_0, 2},
    {"q4_1", TensorType::kQ4_1, 3},
    {"q5_0", TensorType::kQ5_0, 8},
    {"q5_1", TensorType::kQ5_1, 9},
    {"q2_k", TensorType::kQ2_K, 10},
    {"q3_k", TensorType::kQ3_K, 11},
    {"q4_k", TensorType::kQ4_K, 14},
    {"q5_k", TensorType::kQ5_K, 16},
    {"q6_k", TensorType::kQ6_K, 18},
    {"iq4_nl", TensorType::kIQ4_NL, 25},
    {"iq4_xs", TensorType::kIQ4_XS, 30},
    {"mxfp4", TensorType::kMXFP4, 38},
    {"q4_k_m", kQ4_K_M, 15},
    {"q5_k_m", kQ5_K_M, 17},
};

// llama-quantize's choice of layers: the first and the last eighth, and every third between them.
bool IsFinerLayer(size_t layer, size_t layers) {
  const size_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

}  // namespace

TensorType MatrixTypes::OfLayer(TensorRole role, size_t layer, size_t layers) const {
  const bool may_be_finer = role == TensorRole::kV || role == TensorRole::kDown;
  return may_be_finer && IsFinerLayer(layer, layers) ? finer : most;
}

std::span<const NamedMatrixTypes> AllMatrixTypes() { return kAll; }

std::vector<std::string> MatrixTypeNames() {
  std::vector<std::string> names;
  for (const NamedMatrixTypes& named : kAll) names.emplace_back(named.name);
  return names;
}

MatrixTypes MatrixTypesByName(std::string_view name) {
  std::string names;
  for (const NamedMatrixTypes& named : kAll) {
    if (named.name == name) return named.types;
    names += names.empty() ? "" : ", ";
    names += named.name;
  }
  throw Error("no type of matrices named '{}', expected one of: {}", name, names);
}

uint32_t FileTypeOf(const MatrixTypes& types) {
  const auto find = [](const MatrixTypes& wanted) {
    return std::ranges::find(kAll, wanted, &NamedMatrixTypes::types);
  };
  const auto* named = find(types);
  return named != std::end(kAll) ? named->file_type : find(types.most)->file_type;
}

TensorType FallbackType(TensorType type, size_t cols) {
  const auto whole = [&](TensorType t) {
    return cols % LayoutOfGgufType(static_cast<uint32_t>(t)).elements == 0;
  };
  if (whole(type)) return type;
  TensorType fallback = TensorType::kF16;
  switch (type) {
    case TensorType::kQ2_K:
    case TensorType::kQ3_K:
    case TensorType::kIQ4_XS:
      fallback = TensorType::kIQ4_NL;
      break;
    case TensorType::kQ4_K:
      fallback = TensorType::kQ5_0;
      break;
    case TensorType::kQ5_K:
      fallback = TensorType::kQ5_1;
      break;
    case TensorType::kQ6_K:
      fallback = TensorType::kQ8_0;
      break;
    default:
      break;
  }
  return whole(fallback) ? fallback : TensorType::kF16;
}

}  // namespace larder::model::synth
