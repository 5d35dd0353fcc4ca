// K's bias, of which the largest part is not cached with the keys. Trained biases are up to 200
// times as large as a key's other elements (Qwen2.5), and a cached key has one scale for each 32:
// one such bias would leave the others next to no bits. A bias b of a rotated pair needs no cache:
// with q = (q0, q1) of a query that is rotated already, and key position p,
//   q . R(p) b = A cos(p t) + B sin(p t), A = q0 b0 + q1 b1, B = q1 b0 - q0 b1,
// where t is the pair's angle per position: what every score of a query gets from the bias is known
// when the query is. docs/decisions.md has what it is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config/config.h"

namespace larder::model::inline config {

struct KeyBias {
  struct Pair {
    uint32_t index;  // index of the pair in the rotation, below rotary.dim / 2
    float first, second;
  };
  // [kv_heads * head_size], in the file's order: what is added to keys. 0 for the pairs of `apart`,
  // and for elements that do not rotate: these would add the same to all scores of a query, and a
  // softmax without sinks does not change by that.
  std::vector<float> in_keys;
  std::vector<std::vector<Pair>> apart;  // [kv_heads], ascending: what is added to scores
  // [kv_heads][rotary.dim / 2], or empty: a rotated key's pairs times this, and those of the
  // queries of its head divided by it, give the same scores. Large biases of Q cost queries bits,
  // as those of K cost keys, and cannot be put into a table. So a factor, the square root of their
  // size, is moved from queries to keys.
  std::vector<std::vector<float>> balance;
};

// A pair of Q's biases needs no balance up to this norm (the largest among the heads that share
// keys). For a larger norm the balance is sqrt(norm / this).
inline constexpr float kLargeQueryBias = 4;

// Pairs with a larger norm are kept apart. Keys without bias are about 1; of Qwen2.5-0.5B's 1,536
// pairs 128 are larger than this.
inline constexpr float kLargeKeyBias = 4;

// All empty if the layer has no such bias. Where keys are normed after their bias (qwen3) all of it
// is in_keys, and nothing is balanced. Throws Error if the file cannot be read.
KeyBias ReadKeyBias(const GgufFile&, const ModelConfig&, size_t layer);

}  // namespace larder::model::config
