// ReferenceModel: the forward pass written as the papers write it, in plain loops: the oracle that the real
// kernels' logits are held against. Weights and state are float32, sums run in double, so its own rounding is
// far below anything it judges. One sequence, one thread, as slow as that sounds. Its options quantise one
// thing at a time, so that a divergence can be shared out between weights, activations and KV cache.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::model {

struct ReferenceOptions {
  bool weights_as_q8_0 =
      false;  // every matrix, embedding table and head included, as a Q8_0 file would hold it
  bool activations_q8 =
      false;  // the input of every matrix product, and the rotated queries: blocks of 32, float scale
  bool kv_q8 = false;  // keys (rotated) and values: blocks of 32 within a head, f16 scale
};

class ReferenceModel {
 public:
  // Reads all tensors (4 bytes a weight). Throws Error as ReadModelConfig and GgufFile do.
  static ReferenceModel Make(std::shared_ptr<const GgufFile>, ReferenceOptions = {});

  const ModelConfig& config() const { return config_; }
  size_t positions() const { return positions_; }  // held in the KV cache

  // Logits[vocab] after `token` at `position`. Positions come in order from 0; a smaller one than positions()
  // rewinds the sequence to there first. Throws Error for a token outside the vocabulary.
  std::vector<float> Forward(TokenId token, size_t position);

  // Forward of each token from position 0 on: [tokens][vocab]. Ends a sequence that was there.
  std::vector<float> TeacherForced(std::span<const TokenId> tokens);

  void Reset() { positions_ = 0; }

 private:
  struct Matrix {
    std::vector<float> values;  // [rows][cols]
    size_t rows = 0;
    size_t cols = 0;
  };
  struct Layer {
    std::array<Matrix, kTensorRoles> tensors;  // by role; a norm or a bias is one row; empty: there is none
    std::vector<float> keys, values;           // [positions][kv_rows]
    const std::vector<float>& of(TensorRole role) const { return matrix(role).values; }
    const Matrix& matrix(TensorRole role) const { return tensors[static_cast<size_t>(role)]; }
  };
  // What the operations of a layer hand on to each other.
  struct State {
    size_t position = 0;
    std::vector<float> x, in, q, k, v, attended, hidden;
  };

  ReferenceModel() = default;
  Matrix ReadMatrix(const GgufFile&, const std::string& name) const;
  std::vector<float> Product(const Matrix&, std::vector<float> x) const;
  void Rotate(std::span<float> heads, size_t position) const;
  void Run(const LayerOp&, Layer&, State&) const;
  void Attend(Layer&, State&) const;

  ModelConfig config_;
  ReferenceOptions options_;
  Matrix embedding_, head_;  // head_ is empty if the embeddings are tied
  std::vector<float> output_norm_;
  std::vector<Layer> layers_;
  std::vector<float> rope_;  // RopeTable of rope_positions_, grown as the sequence does
  size_t rope_positions_ = 0;
  size_t positions_ = 0;
};

// x becomes what is left of it after INT8: blocks of 32 (the last may be shorter), d = amax / 127 in float, q
// = x / d rounded to nearest even; x = q * d, or q * (d rounded to f16) for Scale::kF16.
enum class Scale { kF32, kF16 };
void RoundThroughQ8(std::span<float> x, Scale);

}  // namespace larder::model
