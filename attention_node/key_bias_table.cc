#include "attention_node/key_bias_table.h"

#include <algorithm>
#include <span>

#include "base/memory.h"
#include "kernels/formats/kv_page.h"

namespace larder::attention_node {

KeyBiasTable::KeyBiasTable(const model::ModelConfig& config, const model::GgufFile& file,
                           NumaNodeId node) {
  using Pair = model::KeyBias::Pair;
  constexpr size_t kPositions = kernels::kChunkPositions;
  std::vector<model::KeyBias> layers;
  // [kind of layer][pair of its rotation]: its wave, which is needed where it is not null.
  std::vector<std::vector<const float*>> waves;
  std::vector<std::vector<bool>> is_used;
  for (const model::LayerSpec& kind : config.kinds) {
    waves.emplace_back(kind.rotary.dim / 2, nullptr);
    is_used.emplace_back(kind.rotary.dim / 2, false);
  }
  size_t pairs = 0, used = 0, balance_floats = 0, balanced = 0;
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const model::KeyBias& bias = layers.emplace_back(model::ReadKeyBias(file, config, layer));
    for (const std::vector<Pair>& head : bias.apart) {
      most_pairs_ = std::max(most_pairs_, head.size());
      pairs += head.size();
      for (const Pair& pair : head) is_used[config.KindOf(layer)][pair.index] = true;
    }
    for (const std::vector<float>& head : bias.balance) {
      if (head.empty()) continue;
      ++balanced;
      balance_floats += 2 * config.layer(layer).sizes.head_size;
    }
  }
  if (pairs == 0 && balanced == 0) return;
  for (const std::vector<bool>& of_kind : is_used)
    used += static_cast<size_t>(std::ranges::count(of_kind, true));
  arena_ = topology::Arena(
      used * 2 * kPositions * sizeof(float) + pairs * (sizeof(Pair) + sizeof(const float*)) +
          balance_floats * sizeof(float) + (used + 2 + 2 * balanced) * kCacheLineBytes,
      node);
  for (size_t kind = 0; kind < waves.size(); ++kind) {
    if (std::ranges::count(is_used[kind], true) == 0) continue;
    const model::RotarySpec& rotary = config.kinds[kind].rotary;
    const std::vector<float> table = model::UnitRopeTable(rotary, kPositions);
    for (size_t i = 0; i < waves[kind].size(); ++i) {
      if (!is_used[kind][i]) continue;
      const std::span<float> wave = arena_.AllocateArray<float>(2 * kPositions);
      for (size_t j = 0; j < kPositions; ++j) {
        wave[j] = table[j * rotary.dim + 2 * i];
        wave[kPositions + j] = table[j * rotary.dim + 2 * i + 1];
      }
      waves[kind][i] = wave.data();
    }
  }
  Pair* pair = arena_.AllocateArray<Pair>(pairs).data();
  const float** wave = arena_.AllocateArray<const float*>(pairs).data();
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const model::KeyBias& bias = layers[layer];
    const size_t head_size = config.layer(layer).sizes.head_size,
                 half = config.layer(layer).rotary.dim / 2;
    std::vector<KeyBiasWaves>& heads = heads_.emplace_back();
    for (size_t head = 0; head < bias.apart.size(); ++head) {
      KeyBiasWaves& of_head = heads.emplace_back(
          KeyBiasWaves{.pair = pair, .wave = wave, .pairs = bias.apart[head].size()});
      pair = std::ranges::copy(bias.apart[head], pair).out;
      for (const Pair& apart : bias.apart[head]) *wave++ = waves[config.KindOf(layer)][apart.index];
      const std::vector<float>& balance = bias.balance[head];
      if (balance.empty()) continue;
      const std::span<float> keys = arena_.AllocateArray<float>(head_size),
                             queries = arena_.AllocateArray<float>(head_size);
      for (size_t i = 0; i < head_size; ++i) {
        keys[i] = i < 2 * half ? balance[i % half] : 1.0f;
        queries[i] = 1.0f / keys[i];
      }
      of_head.of_keys = keys.data();
      of_head.of_queries = queries.data();
    }
    // Layers without a bias of K.
    heads.resize(config.layer(layer).sizes.kv_heads);
  }
}

}  // namespace larder::attention_node
