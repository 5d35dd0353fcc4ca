#include "model/config/key_bias.h"

#include <algorithm>

namespace larder::model::inline config {

KeyBias ReadKeyBias(const GgufFile& file, const ModelConfig& config, size_t layer) {
  KeyBias bias;
  if (!config.layer.Has(TensorRole::kKBias)) return bias;
  bias.in_keys.resize(config.kv_rows());
  file.ReadRowsF32(file.Tensor(config.TensorName(layer, TensorRole::kKBias)), 0, 1,
                   bias.in_keys.data());
  bias.apart.resize(config.kv_heads);
  if (config.layer.Has(TensorRole::kKNorm)) return bias;
  const RotarySpec& rotary = config.layer.rotary;
  const size_t half = rotary.dim / 2;
  const bool interleaved = rotary.pairing == RopePairing::kInterleaved;
  for (size_t head = 0; head < config.kv_heads; ++head) {
    float* const b = bias.in_keys.data() + head * config.head_size;
    for (size_t i = 0; i < half; ++i) {
      float& first = b[interleaved ? 2 * i : i];
      float& second = b[interleaved ? 2 * i + 1 : i + half];
      // Two products and a sum, not a library's root: all machines must choose the same pairs.
      if (first * first + second * second <= kLargeKeyBias * kLargeKeyBias) continue;
      bias.apart[head].push_back({static_cast<uint32_t>(i), first, second});
      first = second = 0;
    }
    std::fill(b + rotary.dim, b + config.head_size, 0.0f);
  }
  return bias;
}

}  // namespace larder::model::config
