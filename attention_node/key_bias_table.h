// KeyBiasTable: what attention adds to the scores for biases of K that are no part of the cached
// keys (model/config/key_bias.h). With a pair's (A, B) and its angle t, within a chunk that begins
// at position c,
//   A cos((c + j) t) + B sin((c + j) t) = A' cos(j t) + B' sin(j t),
//   A' = A cos(c t) + B sin(c t), B' = B cos(c t) - A sin(c t),
// so that all chunks and heads, and all layers of a kind, share one small table of waves. Read-only
// after set-up.
#pragma once

#include <cstddef>
#include <vector>

#include "base/ids.h"
#include "model/config/key_bias.h"
#include "topology/arena.h"

namespace larder::attention_node {

// The waves of one layer and KV head.
struct KeyBiasWaves {
  const model::KeyBias::Pair* pair = nullptr;  // [pairs]
  const float* const* wave = nullptr;  // [pairs]: cos(j t) of kChunkPositions positions j, then sin
  size_t pairs = 0;
  // [head_size] each, or both null: factors for a rotated key's elements, and for a rotated query's
  // (KeyBias::balance, and 1 / balance).
  const float *of_keys = nullptr, *of_queries = nullptr;
};

class KeyBiasTable {
 public:
  // Throws Error if the file cannot be read.
  KeyBiasTable(const model::ModelConfig&, const model::GgufFile&, NumaNodeId);
  // The table must outlive it.
  KeyBiasWaves of(size_t layer, size_t kv_head) const {
    return heads_.empty() ? KeyBiasWaves{} : heads_[layer][kv_head];
  }
  size_t most_pairs() const { return most_pairs_; }  // the most pairs of a head

 private:
  size_t most_pairs_ = 0;
  std::vector<std::vector<KeyBiasWaves>> heads_;  // [layer][kv_head], or empty: no bias is large
  topology::Arena arena_;                         // the waves, then what heads_ points to
};

}  // namespace larder::attention_node
