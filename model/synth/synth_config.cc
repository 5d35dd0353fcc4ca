#include <utility>

#include "model/synth/synth.h"

namespace larder::model::inline synth {

ModelConfig ConfigOfShape(const ModelShape& shape, const std::string& name,
                          const MatrixTypes& types) {
  ModelConfig config;
  config.architecture = shape.architecture;
  const Family& family = FamilyOf(shape.architecture);
  config.architecture_name = family.name;
  config.name = name;
  config.layers = shape.layers;
  config.dim = shape.dim;
  config.ffn = shape.ffn;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_size = shape.head_size;
  config.vocab = shape.vocab;
  config.trained_context = shape.context;
  config.norm_epsilon = static_cast<float>(shape.norm_epsilon);
  config.tied_embeddings = shape.tied;
  RotarySpec rotary;
  rotary.dim = shape.head_size;
  rotary.base = shape.rope_base;
  if (shape.llama3_rope_factor > 0)
    rotary.freq_factors =
        Llama3FreqFactors(shape.head_size, shape.rope_base, shape.llama3_rope_factor);
  config.layer = MakeLayerSpec(family, config.sizes(), shape.qkv_bias, std::move(rotary));
  config.types.embedding = FallbackType(types.OfEmbedding(config.tied_embeddings), config.dim);
  config.types.head =
      config.tied_embeddings ? config.types.embedding : FallbackType(types.OfHead(), config.dim);
  config.types.layers.resize(config.layers);
  for (size_t layer = 0; layer < config.layers; ++layer) {
    config.types.layers[layer].fill(TensorType::kQ8_0);
    for (const TensorSpec& tensor : config.layer.tensors) {
      if (tensor.kind != TensorKind::kMatrix) continue;
      config.types.layers[layer][static_cast<size_t>(tensor.role)] =
          FallbackType(types.OfLayer(tensor.role, layer, config.layers), tensor.cols);
    }
  }
  return config;
}

}  // namespace larder::model::synth
