// The step of a recurrent layer (model::Recurrence), in the place of attention's. Its operand is
// fixed at set-up; its argument `batch` is a model::BatchRows. Rows of qkv are in weight_node's
// order (model::RowsOfHead).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention_node/state_region.h"
#include "kernels/recurrent/recurrent.h"
#include "kernels/rows/elementwise.h"

namespace larder::attention_node {

// The most tokens that pass through a head's state at once: their keys, queries and values stay in
// L1 and L2 beside a part of the state.
inline constexpr size_t kStateTokens = 32;
// The most rows that a convolution sees at once, limits of model/families/ included.
inline constexpr size_t kMaxTaps = 8;

// What all steps of a socket's layers of one kind share.
struct RecurrentShape {
  model::StateKind kind;
  size_t key_size, size, taps, group;  // size: elements of a value; group: value heads of a key
                                       // head
  decltype(kernels::Recurrent::convolve) convolve;  // of queries, keys and values
  // Of the gated delta rule alone:
  float epsilon;                           // of the norm of a head's output
  float unit_epsilon;                      // of the norms that make q and k as long as they must be
  const float *query_weight, *key_weight;  // [key_size]: of these norms
  // Of Mamba-2 alone: what softplus makes least_step of.
  float least_input;
  const kernels::Elementwise* elementwise;
  const kernels::Recurrent* recurrent;
  const StateRegion* states;

  // Where a row of a KV head's products has its parts.
  size_t value(size_t i) const { return 2 * key_size + i * size; }
  size_t gate(size_t i) const { return value(group) + i * size; }
  size_t beta(size_t i) const { return gate(group) + i; }
  size_t alpha(size_t i) const { return beta(group) + i; }
  size_t step(size_t i) const { return gate(group) + i; }  // Mamba-2's alpha
  // Of a convolution: B, C and x.
  size_t part(size_t i) const { return i * size; }
};

// One thread's own memory.
struct StateScratch {
  float* keys;    // [kStateTokens][2 * key_size]: queries and keys
  float* values;  // [kStateTokens][size]
};

// What the step needs of one value head.
struct StateHead {
  size_t index;              // of the value head in its group
  size_t head;               // of the value head in the layer
  const float* convolution;  // [taps][size]: the weights of its value, or of its channels
  float decay, bias, skip;
  float* out;  // row 0's first column of this head
};

struct StateOperand {
  const RecurrentShape* shape;
  StateScratch scratch;
  const float* qkv;  // first column of this group
  size_t qkv_stride;
  const float* convolution;  // [taps][2 * key_size]: the weights of query and key, if there are any
  const float* norm;         // [size]
  size_t layer;
  const StateHead* heads;  // [n_heads]: this thread's value heads of the group
  size_t n_heads;
  size_t out_stride;
};
// For each run of rows of one slot: a row at position 0 begins with a state of zeros; others go on
// with the slot's.
void StateStep(const void* operand, void* batch);

}  // namespace larder::attention_node
