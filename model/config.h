// ModelConfig: what the rest of Larder needs to know of a model's shape, read from a GGUF file's metadata
// and checked against its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf.h"

namespace larder::model {

enum class Architecture { kLlama, kQwen2, kQwen3 };

// How a head's elements pair up for rotary embedding. kInterleaved: (2i, 2i+1), GGUF's `llama` files.
// kHalves: (i, i + rotary_dim/2), `qwen2` and `qwen3` ("NeoX").
enum class RopePairing { kInterleaved, kHalves };

enum class RopeScaling { kNone, kLinear, kYarn };  // llama3 scaling comes as the rope_freqs tensor

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::string architecture_name;  // "llama"
  std::string name;               // general.name, or the file's name
  size_t layers = 0;
  size_t dim = 0;        // embedding length
  size_t ffn = 0;        // feed-forward length
  size_t heads = 0;      // query heads
  size_t kv_heads = 0;   // key/value heads; heads % kv_heads == 0
  size_t head_size = 0;  // explicit (attention.key_length) or dim / heads; key and value sizes are equal
  size_t vocab = 0;      // rows of the embedding table
  size_t trained_context = 0;
  float norm_epsilon = 1e-5f;
  bool qkv_bias = false;         // qwen2 (and llama files that carry attn_q.bias)
  bool qk_norm = false;          // qwen3: RMSNorm of each head of q and k
  bool tied_embeddings = false;  // no output.weight: the head is the embedding table

  RopePairing rope_pairing = RopePairing::kInterleaved;
  size_t rotary_dim = 0;  // = head_size unless rope.dimension_count says less
  double rope_base = 10000.0;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_scale_factor = 1.0;
  size_t rope_original_context = 0;
  double yarn_ext_factor = 1.0, yarn_attn_factor = 1.0, yarn_beta_fast = 32.0, yarn_beta_slow = 1.0;
  std::vector<float> rope_freq_factors;  // rope_freqs.weight, rotary_dim/2 values, or empty

  size_t q_rows() const { return heads * head_size; }
  size_t kv_rows() const { return kv_heads * head_size; }
  size_t group() const { return heads / kv_heads; }  // query heads of one KV head
  uint64_t parameters() const;
};

// Throws Error for an unsupported architecture (names those supported), missing or impossible keys, missing
// tensors or tensors of another shape than the keys say, types we do not read, sliding windows or experts.
ModelConfig ReadModelConfig(const GgufFile&);

// cos and sin of every rotation: for position p and pair i of rotary_dim/2:
// angle = p * inv_freq(i), table[p * rotary_dim + 2 * i] = cos * m, [... + 1] = sin * m, where inv_freq and
// the magnitude m follow rope_scaling (linear: Chen 2023; YaRN: Peng 2023 section 3; rope_freqs: divides by
// the factor). Computed in double, once, at set-up: the kernels and the scalar reference share the table.
std::vector<float> RopeTable(const ModelConfig&, size_t positions);

// Canonical tensor names: "blk.3.attn_q.weight".
std::string LayerTensor(size_t layer, const char* suffix);

}  // namespace larder::model
