#include "model/families/family.h"
#include "model/synth/synth.h"

namespace larder::model::inline synth {

LayerSizes ModelShape::SizesOf(size_t layer) const {
  const auto or_odd = [&](size_t even, size_t odd) {
    return layer % 2 == 1 && odd != 0 ? odd : even;
  };
  return {.dim = dim,
          .ffn = or_odd(ffn, odd_ffn),
          .heads = or_odd(heads, odd_heads),
          .kv_heads = or_odd(kv_heads, odd_kv_heads),
          .head_size = head_size};
}

ModelConfig ConfigOfShape(const ModelShape& shape, const std::string& name,
                          const MatrixTypes& types) {
  ModelConfig config;
  const Family& family = FamilyOf(shape.architecture);
  config.architecture_name = family.name;
  config.name = name;
  config.layers = shape.layers;
  config.dim = shape.dim;
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
  for (size_t layer = 0; layer < shape.layers; ++layer) {
    const LayerSizes sizes = shape.SizesOf(layer);
    const bool odd = layer % 2 == 1 && sizes != shape.SizesOf(0);
    config.kind_of.push_back(odd);
    if (config.kinds.size() <= config.kind_of.back())
      config.kinds.push_back(
          MakeLayerSpec(family, sizes, config.norm_epsilon, {.qkv_bias = shape.qkv_bias}, rotary));
  }
  config.types.embedding = FallbackType(types.OfEmbedding(config.tied_embeddings), config.dim);
  config.types.head =
      config.tied_embeddings ? config.types.embedding : FallbackType(types.OfHead(), config.dim);
  config.types.layers.resize(config.layers);
  for (size_t layer = 0; layer < config.layers; ++layer) {
    config.types.layers[layer].fill(TensorType::kQ8_0);
    for (const TensorSpec& tensor : config.layer(layer).tensors) {
      if (tensor.kind != TensorKind::kMatrix) continue;
      config.types.layers[layer][static_cast<size_t>(tensor.role)] =
          FallbackType(types.OfLayer(tensor.role, layer, config.layers), tensor.cols);
    }
  }
  return config;
}

}  // namespace larder::model::synth
