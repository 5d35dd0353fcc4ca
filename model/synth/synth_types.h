// Which type each matrix of a synthetic file has: one type for all, or a mixture as llama-quantize
// writes it. Set-up code, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf/formats.h"
#include "model/layer/layer_spec.h"

namespace larder::model::inline synth {

// The types of a file's matrices before FallbackType.
struct MatrixTypes {
  constexpr MatrixTypes(TensorType all) : most(all), finer(all) {}  // NOLINT: implicit on purpose
  constexpr MatrixTypes(TensorType most_matrices, TensorType finer_matrices)
      : most(most_matrices), finer(finer_matrices) {}

  TensorType most;
  // The type of the matrices that get more bits in llama-quantize's _M mixtures: lm_head (the
  // embedding table if it is both), and v and down in half of the layers.
  TensorType finer;

  // The type of a layer's matrix; `layer` counts from 0 to layers - 1.
  TensorType OfLayer(TensorRole role, size_t layer, size_t layers) const;
  TensorType OfEmbedding(bool tied) const { return tied ? finer : most; }
  TensorType OfHead() const { return finer; }

  bool operator==(const MatrixTypes&) const = default;
};
inline constexpr MatrixTypes kQ4_K_M{TensorType::kQ4_K, TensorType::kQ6_K},
    kQ5_K_M{TensorType::kQ5_K, TensorType::kQ6_K};

struct NamedMatrixTypes {
  std::string_view name;  // "q4_k_m", for command lines
  MatrixTypes types;
  // GGUF's general.file_type of such a file, by llama.cpp's numbers. For Q3_K, Q4_K and Q5_K, which
  // have variants, the small one, which is nearest to one type for all.
  uint32_t file_type;
};
// Every readable type, then the mixtures.
std::span<const NamedMatrixTypes> AllMatrixTypes();
// Their names, for command lines.
std::vector<std::string> MatrixTypeNames();
// Lower case only. Throws Error that lists the names.
MatrixTypes MatrixTypesByName(std::string_view name);
// general.file_type; that of types.most for a mixture without a name.
uint32_t FileTypeOf(const MatrixTypes& types);

// What llama-quantize writes instead of `type` for rows of `cols` weights that are not whole
// blocks: for super-blocks of 256 a type of the same or more bits in blocks of 32, and F16 if the
// rows aren't whole blocks of 32 either. `type` itself if they are whole blocks.
TensorType FallbackType(TensorType type, size_t cols);

}  // namespace larder::model::synth
