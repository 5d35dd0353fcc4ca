// Synthetic models: GGUF files of any shape with random weights, so that a machine can be measured
// and every command tried without a real model's weights. The same options give the same file.
// Set-up code, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "model/gguf/formats.h"
#include "model/gguf/gguf.h"
#include "model/synth/synth_types.h"

namespace larder::model::inline synth {

struct ModelShape {
  std::string_view architecture = "llama";  // a family of model/families/; static storage
  size_t layers = 2;
  size_t dim = 256;
  size_t ffn = 704;
  size_t heads = 8;
  size_t kv_heads = 4;
  size_t head_size = 32;
  size_t vocab = 512;  // at least kMinSynthVocab
  size_t context = 2048;
  bool tied = false;
  bool qkv_bias = false;       // always on in some families
  bool qk_norm = false;        // in families whose files may have none
  bool output_biases = false;  // biases of O and down
  bool gate_biases = false;    // biases of gate and up
  double rope_base = 10000.0;
  double llama3_rope_factor = 0.0;  // > 0: writes rope_freqs.weight (Llama3FreqFactors)
  double norm_epsilon = 1e-5;
  size_t window = 0;      // of the layers that have one in the family; 0: none
  size_t full_every = 0;  // each n-th layer has none; 0: as in the family
  // In families whose layers with windows have sizes of their own, where not 0: their heads,
  // instead of the family's sample, and the KV heads of the layers without.
  size_t window_head_size = 0, full_kv_heads = 0;
  // If not 0: the sizes of layers 1, 3, 5 ..., so that the model has two kinds of layers.
  size_t odd_ffn = 0, odd_heads = 0, odd_kv_heads = 0;

  // Of the gated delta rule or Mamba-2, in families that have it; 0: key heads and value heads as
  // kv_heads and heads, sizes of 32.
  size_t key_heads = 0, value_heads = 0, key_size = 0, value_size = 0;

  // Of latent attention: elements of a head that rotate, the others being the latent; of what
  // queries are made of (0: of the residual); key_size and value_size are those of LatentSpec.
  // Without them halves, of a head, of dim and of the latent.
  size_t rotated = 0;
  std::optional<size_t> query_rank;

  // Experts, in families that have them; 0: the family's sample. An expert's length is that of the
  // FFN unless expert_ffn says otherwise.
  // dense_layers: the first, which have none.
  size_t experts = 0, experts_used = 0, expert_ffn = 0, shared_ffn = 0, dense_layers = 0;

  // In gemma4: the elements of layer inputs (LayerSpec::input_size), 0: none; how many of the last
  // layers attend to the keys and values of others, and the length of their FFN, 0: that of others;
  // whether layers without windows have a V of their own.
  size_t input_size = 0, shared_kv = 0, shared_kv_ffn = 0;
  bool own_values = false;

  // As a file's keys say: without KV heads where the family has a state instead of attention.
  LayerSizes SizesOf(size_t layer) const;
  // Of the blocks in the file: those of layers, unless the family's FFNs are blocks of their own.
  std::vector<LayerSizes> Blocks() const;
};

// Unknown, BOS, EOS and the 256 byte tokens, which can encode any text.
inline constexpr size_t kMinSynthVocab = 259;

struct NamedShape {
  std::string_view name;  // "llama-3.2-3b"
  ModelShape shape;
};
// Well-known models, from their config.json files, and Larder's own bench-24m and bench-1b.
const std::vector<NamedShape>& NamedShapes();
// Case does not matter. Throws Error that lists the names.
ModelShape ShapeByName(std::string_view name);

// The ModelConfig that ReadModelConfig would read from a synthetic file of this shape and with
// these types, without the file. For plans.
ModelConfig ConfigOfShape(const ModelShape& shape, const std::string& name,
                          const MatrixTypes& types = TensorType::kQ8_0);

struct SynthOptions {
  ModelShape shape;
  // The types of the matrices. Rows that are not whole blocks get the FallbackType, as
  // llama-quantize writes them.
  MatrixTypes type = TensorType::kQ8_0;
  uint64_t seed = 1;
  // The deviation of the weights of matrices. 0: 1 / sqrt(cols), which keeps the size of
  // activations.
  float standard_deviation = 0.0f;
  std::string name;  // general.name; empty: "synth"
};

// Throws Error for a shape that ReadModelConfig would refuse, or if the file cannot be written.
void WriteSynth(const SynthOptions& options, const std::string& path,
                const WriteProgress& progress = {});

// Family::Sample::counts, as the shape says otherwise.
std::vector<std::pair<std::string_view, uint32_t>> CountsOfSample(const ModelShape&);
// The keys of states in matrices, without the family's name; none in other families.
std::vector<std::pair<std::string_view, uint32_t>> KeysOfState(const ModelShape&);
// The keys of latent attention; none in other families.
std::vector<std::pair<std::string_view, uint32_t>> KeysOfLatent(const ModelShape&);
// The keys of experts; none in other families.
std::vector<std::pair<std::string_view, uint32_t>> KeysOfExperts(const ModelShape&);
// The keys of layer inputs, of shared keys and values and of full_every; none in shapes without.
std::vector<std::pair<std::string_view, uint32_t>> KeysOfInputs(const ModelShape&);
// The elements of a head that rotate, and rope.scaling.original_context_length.
size_t RotaryDim(const ModelShape&);
// Its files' attention.sliding_window; 0: they have none. In families that always have windows one
// that hides nothing, if the shape says none.
size_t WindowOf(const ModelShape&);
size_t OriginalContext(const ModelShape&);
// The factors of LongRoPE in synthetic files, and rope.scaling.attn_factor.
std::vector<float> LongRopeFactors(size_t rotary_dim, bool for_long);
inline constexpr float kLongRopeMagnitude = 1.25f;

// The rotary_dim / 2 factors of Llama 3.1's "llama3" rope scaling: `factor` for wavelengths above
// original_context / low_freq_factor, 1 for those below original_context / high_freq_factor, and a
// smooth transition between.
std::vector<float> Llama3FreqFactors(size_t rotary_dim, double rope_base, double factor,
                                     double low_freq_factor = 1.0, double high_freq_factor = 4.0,
                                     double original_context = 8192.0);

}  // namespace larder::model::synth
