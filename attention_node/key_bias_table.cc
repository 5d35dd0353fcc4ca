#include "attention_node/key_bias_table.h"

#include <algorithm>
#include <span>

#include "base/memory.h"
#include "kernels/formats/kv_page.h"

namespace larder::attention_node {

KeyBiasTable::KeyBiasTable(const model::ModelConfig& config, const model::GgufFile& file,
                           NumaNodeId node)
    : kv_heads_(config.kv_heads) {
  using Pair = model::KeyBias::Pair;
  constexpr size_t kPositions = kernels::kChunkPositions;
  std::vector<model::KeyBias> layers;
  std::vector<const float*> waves(config.layer.rotary.dim / 2, nullptr);  // by pair of the rotation
  size_t pairs = 0, used = 0, balanced = 0;
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const model::KeyBias& bias = layers.emplace_back(model::ReadKeyBias(file, config, layer));
    for (const std::vector<Pair>& head : bias.apart) {
      most_pairs_ = std::max(most_pairs_, head.size());
      pairs += head.size();
    }
    for (const std::vector<float>& head : bias.balance) balanced += !head.empty();
  }
  if (pairs == 0 && balanced == 0) return;
  std::vector<bool> is_used(waves.size(), false);
  for (const model::KeyBias& layer : layers) {
    for (const std::vector<Pair>& head : layer.apart) {
      for (const Pair& pair : head) is_used[pair.index] = true;
    }
  }
  used = static_cast<size_t>(std::ranges::count(is_used, true));
  arena_ = topology::Arena(used * 2 * kPositions * sizeof(float) +
                               pairs * (sizeof(Pair) + sizeof(const float*)) +
                               balanced * 2 * config.head_size * sizeof(float) +
                               (used + 2 + 2 * balanced) * kCacheLineBytes,
                           node);
  const std::vector<float> table = model::UnitRopeTable(config.layer.rotary, kPositions);
  for (size_t i = 0; i < waves.size(); ++i) {
    if (!is_used[i]) continue;
    const std::span<float> wave = arena_.AllocateArray<float>(2 * kPositions);
    for (size_t j = 0; j < kPositions; ++j) {
      wave[j] = table[j * config.layer.rotary.dim + 2 * i];
      wave[kPositions + j] = table[j * config.layer.rotary.dim + 2 * i + 1];
    }
    waves[i] = wave.data();
  }
  Pair* pair = arena_.AllocateArray<Pair>(pairs).data();
  const float** wave = arena_.AllocateArray<const float*>(pairs).data();
  const size_t half = config.layer.rotary.dim / 2;
  for (const model::KeyBias& layer : layers) {
    for (size_t head = 0; head < layer.apart.size(); ++head) {
      KeyBiasWaves& of_head = heads_.emplace_back(
          KeyBiasWaves{.pair = pair, .wave = wave, .pairs = layer.apart[head].size()});
      pair = std::ranges::copy(layer.apart[head], pair).out;
      for (const Pair& apart : layer.apart[head]) *wave++ = waves[apart.index];
      const std::vector<float>& balance = layer.balance[head];
      if (balance.empty()) continue;
      const std::span<float> keys = arena_.AllocateArray<float>(config.head_size),
                             queries = arena_.AllocateArray<float>(config.head_size);
      for (size_t i = 0; i < config.head_size; ++i) {
        keys[i] = i < 2 * half ? balance[i % half] : 1.0f;
        queries[i] = 1.0f / keys[i];
      }
      of_head.of_keys = keys.data();
      of_head.of_queries = queries.data();
    }
  }
}

}  // namespace larder::attention_node
