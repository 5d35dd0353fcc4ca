#include "model/config/key_bias.h"

#include <algorithm>
#include <cmath>

namespace larder::model::inline config {

namespace {

struct PairOf {
  float &first, &second;
  // Two products and a sum, not a library's function: all machines must choose the same pairs.
  float square() const { return first * first + second * second; }
};

PairOf PairAt(const RotarySpec& rotary, float* head, size_t i) {
  const bool interleaved = rotary.pairing == RopePairing::kInterleaved;
  return {head[interleaved ? 2 * i : i], head[interleaved ? 2 * i + 1 : i + rotary.dim / 2]};
}

// KeyBias::balance of the KV head whose queries' biases begin at `queries`; empty: all 1.
std::vector<float> BalanceOf(const LayerSpec& layer, float* queries) {
  std::vector<float> balance(layer.rotary.dim / 2, 1.0f);
  bool any = false;
  for (size_t i = 0; i < balance.size(); ++i) {
    float square = 0;
    for (size_t q = 0; q < layer.sizes.group(); ++q) {
      square =
          std::max(square, PairAt(layer.rotary, queries + q * layer.sizes.head_size, i).square());
    }
    if (!(square > kLargeQueryBias * kLargeQueryBias)) continue;
    balance[i] = std::sqrt(std::sqrt(square) / kLargeQueryBias);
    any = true;
  }
  return any ? balance : std::vector<float>();
}

}  // namespace

KeyBias ReadKeyBias(const GgufFile& file, const ModelConfig& config, size_t layer) {
  KeyBias bias;
  const LayerSpec& spec = config.layer(layer);
  const size_t kv_heads = spec.sizes.kv_heads, head_size = spec.sizes.head_size;
  if (!spec.Has(TensorRole::kKBias)) return bias;
  bias.in_keys = ReadVector(file, config, layer, TensorRole::kKBias);
  bias.apart.resize(kv_heads);
  bias.balance.resize(kv_heads);
  if (spec.Has(TensorRole::kKNorm)) return bias;
  const RotarySpec& rotary = spec.rotary;
  std::vector<float> queries = ReadVector(file, config, layer, TensorRole::kQBias);
  for (size_t head = 0; head < kv_heads; ++head) {
    float* const b = bias.in_keys.data() + head * head_size;
    for (size_t i = 0; i < rotary.dim / 2; ++i) {
      const PairOf pair = PairAt(rotary, b, i);
      if (pair.square() <= kLargeKeyBias * kLargeKeyBias) continue;
      bias.apart[head].push_back({static_cast<uint32_t>(i), pair.first, pair.second});
      pair.first = pair.second = 0;
    }
    if (!spec.Has(TensorRole::kSinks)) std::fill(b + rotary.dim, b + head_size, 0.0f);
    bias.balance[head] = BalanceOf(spec, queries.data() + head * spec.sizes.group() * head_size);
  }
  return bias;
}

}  // namespace larder::model::config
