#include "model/synth/synth.h"

namespace larder::model {

ModelConfig ConfigOfShape(const ModelShape& shape, const std::string& name) {
  ModelConfig config;
  config.architecture = shape.architecture;
  config.architecture_name = shape.architecture == Architecture::kLlama   ? "llama"
                             : shape.architecture == Architecture::kQwen2 ? "qwen2"
                                                                          : "qwen3";
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
  config.qkv_bias = shape.qkv_bias || shape.architecture == Architecture::kQwen2;
  config.qk_norm = shape.architecture == Architecture::kQwen3;
  config.tied_embeddings = shape.tied;
  config.rope_pairing =
      shape.architecture == Architecture::kLlama ? RopePairing::kInterleaved : RopePairing::kHalves;
  config.rotary_dim = shape.head_size;
  config.rope_base = shape.rope_base;
  if (shape.llama3_rope_factor > 0) {
    config.rope_freq_factors = Llama3FreqFactors(shape.head_size, shape.rope_base, shape.llama3_rope_factor);
  }
  return config;
}

}  // namespace larder::model
