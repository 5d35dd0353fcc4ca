// ReferenceModel: the forward pass in plain loops, as the papers write it. It is the oracle for the
// real kernels' logits. Weights and state are float32 and sums are in double, so that its own
// rounding is far smaller than the differences that it judges. One sequence, one thread, slow. Each
// option quantises one thing, so that a divergence can be attributed to weights, activations or KV
// cache.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline reference {

struct ReferenceOptions {
  bool weights_as_q8_0 = false;  // all matrices, also the embedding table and lm_head, as in a Q8_0
                                 // file
  bool activations_q8 = false;   // inputs of matrix products, and rotated queries: blocks of 32,
                                 // float scale
  bool kv_q8 = false;            // keys (rotated) and values: blocks of 32 within a head, f16 scale
  size_t context = 0;            // of the run, which LongRoPE follows; 0: the model's
};

class ReferenceModel {
 public:
  // Reads all tensors (4 bytes per weight). Throws Error as ReadModelConfig and GgufFile do.
  static ReferenceModel Make(std::shared_ptr<const GgufFile>, ReferenceOptions = {});

  const ModelConfig& config() const { return config_; }
  size_t positions() const { return positions_; }  // positions in the KV cache

  // Logits[vocab] after `token` at `position`. Positions must come in order from 0; a position
  // below positions() first rewinds the sequence to it: with recurrent layers only to 0. Throws
  // Error for a token outside the vocabulary.
  std::vector<float> Forward(TokenId token, size_t position);

  // Starts a new sequence and runs Forward for each token: [tokens][vocab].
  std::vector<float> TeacherForced(std::span<const TokenId> tokens);

  // What a router has chosen, and by how much the last of these was before the next one.
  struct Routing {
    size_t layer = 0;
    std::vector<size_t> experts;  // ascending
    double margin = 0;
  };
  const std::vector<Routing>& routed() const { return routed_; }  // of the last token

  void Reset() { positions_ = 0; }

 private:
  struct Matrix {
    std::vector<float> values;  // [rows][cols]
    size_t rows = 0;
    size_t cols = 0;
  };
  struct Layer {
    std::array<Matrix, kTensorRoles> tensors;  // by role; a norm or a bias has one row; empty: no
                                               // such tensor
    std::vector<float> keys, values;           // [positions][kv_rows]
    std::vector<float> inputs;                 // of the convolution: [taps - 1][channels]
    std::vector<double> state;                 // [heads][key size][head size]
    size_t index = 0;
    const std::vector<float>& of(TensorRole role) const { return matrix(role).values; }
    bool has(TensorRole role) const { return !of(role).empty(); }
    const Matrix& matrix(TensorRole role) const { return tensors[static_cast<size_t>(role)]; }
  };
  // The values that a layer's operations pass to each other.
  struct State {
    size_t position = 0;
    std::vector<float> x, in, q, k, v, attended, hidden, gate, alpha, beta;
    std::vector<float> state_q, state_k, state_v, state_out;  // of a state beside attention
    std::vector<float> inputs;                                // of all layers (input_size)
  };

  ReferenceModel() = default;
  Matrix ReadMatrix(const GgufFile&, const std::string& name) const;
  Matrix ReadMatrix(const GgufFile&, size_t layer, const TensorSpec&) const;
  void ReadRow(const GgufFile&, const TensorInfo&, size_t row, float* values) const;
  std::vector<float> Product(const Matrix&, std::vector<float> x) const;
  // With rows [first, first + rows) of the matrix.
  std::vector<float> Product(const Matrix&, size_t first, size_t rows, std::vector<float> x) const;
  void Rotate(size_t layer, std::span<float> heads, size_t position) const;
  void Run(const LayerOp&, Layer&, State&);
  void NormQueriesAndKeys(Layer&, State&) const;
  void Attend(Layer&, State&);
  // An FFN's hidden values: gate(gate) * up.
  std::vector<float> Gated(const Layer&, std::vector<float> gate,
                           const std::vector<float>& up) const;
  // The sum of the experts' outputs for s.in (ExpertSpec).
  std::vector<float> RunExperts(const Layer&, const State&);
  // Chosen experts, ascending, and their weights.
  std::vector<std::pair<size_t, double>> Choose(const Layer&, std::vector<float> in);
  // Of a residual, or of what a layer adds to it.
  std::vector<float> Norm(const std::vector<float>& x, const std::vector<float>& w,
                          const Layer&) const;
  // Takes the output gates out of the queries.
  void ProjectLatent(const Layer&, State&) const;
  // A token's layer inputs, x being its embedding (LayerSpec::input_size).
  std::vector<float> InputsOf(TokenId, const std::vector<float>& x) const;
  void SplitGates(const Layer&, State&) const;
  // A causal convolution, channel by channel, of this token's inputs and those before it, which the
  // layer keeps.
  std::vector<double> Convolve(Layer&, const State&, const std::vector<float>& inputs) const;
  void ApplyDeltaRule(Layer&, State&) const;
  void ApplyConvolution(Layer&, State&) const;
  void ApplyMamba2(Layer&, State&) const;
  // x += residual scale * norm(product + bias); the norm and the bias, where there is one.
  void AddToResidual(const LayerOp&, const Layer&, TensorRole matrix,
                     std::optional<TensorRole> bias, std::vector<float> in, State&);

  ModelConfig config_;
  ReferenceOptions options_;
  Matrix embedding_, head_;  // head_ (lm_head) is empty if the embeddings are tied
  std::vector<float> output_norm_;
  Matrix input_embedding_, input_matrix_;  // of layer inputs, and their norm
  std::vector<float> input_norm_;
  std::vector<Layer> layers_;
  // By kind of layer: RopeTable of rope_positions_ positions; they grow with the sequence.
  std::vector<std::vector<float>> rope_;
  size_t rope_positions_ = 0;
  std::vector<Routing> routed_;
  size_t positions_ = 0;
};

// Rounds x as INT8 does: blocks of 32 (the last may be shorter), d = amax / 127 in float, q = x / d
// rounded to nearest even; x = q * d, or q * (d rounded to f16) for Scale::kF16.
enum class Scale { kF32, kF16 };
void RoundThroughQ8(std::span<float> x, Scale);

}  // namespace larder::model::reference
