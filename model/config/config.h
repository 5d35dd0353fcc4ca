// ModelConfig: what the rest of Larder needs to know about a model, read from a GGUF file's
// metadata and checked against its tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/families/family.h"
#include "model/gguf/gguf.h"
#include "model/layer/layer_spec.h"

namespace larder::model::inline config {

// As many roles had types before there were matrices behind them: descriptions and parts of models
// without such matrices still have so many for a layer.
inline constexpr size_t kOldRoles = static_cast<size_t>(TensorRole::kOBias);

// GGUF types of a whole model's matrices.
struct TensorTypes {
  using OfLayer = std::array<TensorType, kTensorRoles>;  // by role; used for matrices only
  std::vector<OfLayer> layers;                           // empty: all Q8_0
  TensorType embedding = TensorType::kQ8_0;
  TensorType head = TensorType::kQ8_0;  // with tied embeddings the same type
  // Of layer inputs.
  TensorType input_embedding = TensorType::kQ8_0, input_matrix = TensorType::kQ8_0;
};

// The part of a model that its file holds: all, or what `larder split` put there
// (model/config/split.h).
struct ModelPart {
  enum class Kind { kWhole, kStage, kServing };
  Kind kind = Kind::kWhole;
  size_t index = 0, count = 0;         // stage number; number of stages
  size_t first_layer = 0, layers = 0;  // the layers of a stage
  // Properties of the whole model that cannot be seen from a part's tensors.
  size_t vocab = 0;
  bool tied_embeddings = false;
  TensorForms forms;
  uint64_t fingerprint = 0;
  TensorTypes types;
};

inline constexpr uint64_t kMaxVocab = 1 << 22;

struct ModelConfig {
  std::string architecture_name;  // "llama": model/families/
  std::string name;               // general.name, or the file's name
  size_t layers = 0;
  size_t first_layer = 0;  // the model's number of this config's layer 0; not 0 in a later part of
                           // a model
  bool ends = true;        // it includes the embedding, output norm and lm_head
  size_t dim = 0;          // embedding length
  size_t vocab = 0;        // rows of the embedding table
  size_t trained_context = 0;
  float norm_epsilon = 1e-5f;      // epsilon of the output norm
  NormKind norm = NormKind::kRms;  // kind of the output norm
  bool tied_embeddings = false;    // no output.weight: lm_head is the embedding table
  Scales scales;
  size_t input_size = 0;  // LayerSpec::input_size, of all layers
  static constexpr size_t kMaxKinds = 256;
  std::vector<LayerSpec> kinds;  // the kinds of layers of the whole model; at most kMaxKinds
  std::vector<uint8_t> kind_of;  // [the whole model's layers]: index into kinds
  // [the whole model's layers]: the first block in the file, N of "blk.N"; empty: the layer's own
  // number.
  std::vector<uint32_t> first_block;
  TensorTypes types;

  ModelPart part;  // the part in the file that this was read from

  // Describes the next of the whole model's layers; those that are alike in everything are of one
  // kind. Returns false if that would be one kind too many.
  bool AddLayer(LayerSpec);
  // The kind of a layer; index 0 is layer first_layer.
  size_t KindOf(size_t index) const { return kind_of.at(first_layer + index); }
  const LayerSpec& layer(size_t index) const { return kinds[KindOf(index)]; }
  // The kinds that occur among the config's own layers, ascending.
  std::vector<size_t> OwnKinds() const;
  // The largest value over all layers, 0 without layers: config.Most([](const LayerSpec& layer) {
  // return layer.sizes.ffn; }).
  template <typename Of>
  size_t Most(Of of) const {
    size_t most = 0;
    for (size_t i = 0; i < layers; ++i) most = std::max<size_t>(most, std::invoke(of, layer(i)));
    return most;
  }
  // The sum over all layers.
  template <typename Of>
  size_t Sum(Of of) const {
    size_t sum = 0;
    for (size_t i = 0; i < layers; ++i) sum += std::invoke(of, layer(i));
    return sum;
  }
  // Elements of a token's layer inputs, of all layers of the whole model.
  size_t all_inputs() const { return input_size * kind_of.size(); }
  // How many of the whole model's last layers belong together, as later ones attend to the keys and
  // values of the first of them; else 1.
  size_t layers_together() const;
  // The last of the config's own layers that stores keys, values or a state of its own: of rows
  // that nobody reads, what lies behind need not be computed.
  size_t last_storing() const;
  bool recurrent() const;  // whether one of the whole model's layers is
  // The config's first layer with attention; without one, its first layer.
  const LayerSpec& FirstWithAttention() const;
  uint64_t parameters() const;
  // The type of a layer's matrix. `index` 0 is layer first_layer.
  TensorType TypeOf(size_t index, TensorRole role) const {
    return types.layers.empty() ? TensorType::kQ8_0
                                : types.layers.at(first_layer + index)[static_cast<size_t>(role)];
  }
  // The name in the model's file of the tensor that has or is it: "blk.3.attn_q.weight". `index` 0
  // is layer first_layer, which must have such a tensor.
  std::string TensorName(size_t index, TensorRole role) const {
    return TensorName(index, layer(index).tensor(role), 0);
  }
  // Of the tensors that are it together (TensorSpec::each).
  std::string TensorName(size_t index, const TensorSpec& tensor, size_t number) const {
    return LayerTensor(BlockOf(first_layer + index), tensor, number);
  }
  // `layer`: of the whole model.
  size_t BlockOf(size_t layer) const { return first_block.empty() ? layer : first_block.at(layer); }
};

// Throws Error for an unsupported architecture (the message lists the supported ones), missing or
// invalid keys, missing tensors or tensors whose shape contradicts the keys, unsupported tensor
// types and experts. If `larder split` wrote the file, only its part's tensors are
// expected; the config is still the whole model's.
ModelConfig ReadModelConfig(const GgufFile&);

// The name of the tensor that is the norm in front of lm_head.
std::string OutputNormTensor(const ModelConfig&);

// The layers as text: "24 layers, dim 896, ffn 4864, 14 heads / 2 KV heads of 64". With several
// kinds of layers: the sizes of each, with the number of its layers.
std::string LayersText(const ModelConfig&);

// The model as runs with this context compute it: of LongRoPE's factors, those for such contexts.
ModelConfig ForContext(ModelConfig, size_t context);
// Which factors ForContext chose or would choose of them, for people; empty for other models.
std::string LongRopeText(const ModelConfig&, size_t context);

// A tensor of a layer that is no matrix: all its numbers, row by row, or its part of the file's
// tensor. `index` as in ModelConfig::TensorName.
std::vector<float> ReadVector(const GgufFile&, const ModelConfig&, size_t index, TensorRole);

// Parts of a model, as stages and the serving socket hold them: LayersOf has `count` layers from
// `first` on, without the ends; EndsOf has the ends without layers.
ModelConfig LayersOf(ModelConfig, size_t first, size_t count);
ModelConfig EndsOf(ModelConfig);

// cos and sin of every rotation: for position p and pair i of dim/2:
//   angle = p * inv_freq(i), table[p * dim + 2 * i] = cos * m, [... + 1] = sin * m,
// where inv_freq and the magnitude m follow the scaling (linear: Chen 2023; YaRN: Peng 2023 section
// 3; rope_freqs: divides by the factor). Computed once, at set-up, in double; the kernels and the
// scalar reference use the same table.
std::vector<float> RopeTable(const RotarySpec&, size_t positions);
// The same with m = 1.
std::vector<float> UnitRopeTable(const RotarySpec&, size_t positions);

}  // namespace larder::model::config
