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
  size_t pairs = 0, used = 0;
  for (size_t layer = 0; layer < config.layers; ++layer) {
    for (const std::vector<Pair>& head :
         layers.emplace_back(model::ReadKeyBias(file, config, layer)).apart) {
      most_pairs_ = std::max(most_pairs_, head.size());
      pairs += head.size();
    }
  }
  if (pairs == 0) return;
  std::vector<bool> is_used(waves.size(), false);
  for (const model::KeyBias& layer : layers) {
    for (const std::vector<Pair>& head : layer.apart) {
      for (const Pair& pair : head) is_used[pair.index] = true;
    }
  }
  used = static_cast<size_t>(std::ranges::count(is_used, true));
  arena_ = topology::Arena(used * 2 * kPositions * sizeof(float) +
                               pairs * (sizeof(Pair) + sizeof(const float*)) + 3 * kCacheLineBytes,
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
  for (const model::KeyBias& layer : layers) {
    for (const std::vector<Pair>& head : layer.apart) {
      heads_.push_back({.pair = pair, .wave = wave, .pairs = head.size()});
      pair = std::ranges::copy(head, pair).out;
      for (const Pair& of_head : head) *wave++ = waves[of_head.index];
    }
  }
}

}  // namespace larder::attention_node
