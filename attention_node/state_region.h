// StateRegion: the states of the recurrent layers of one attention socket (model::DeltaRule), in
// blocks: one block has the states of all such layers of a sequence. A slot's block is the one of
// its number. The thread that updates a head's state touches its memory first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/config/config.h"
#include "topology/arena.h"

namespace larder::attention_node {

struct StateShape {
  // The state of one value head. matrix: the T of kernels/recurrent/recurrent.h,
  // [value size / kStateColumns][key size][kStateColumns]; then its G, alone in a cache line; then
  // the inputs of the convolution of the last taps - 1 tokens, [taps - 1][tail_row]: query, key,
  // value.
  struct Layer {
    Layer(const model::LayerSpec&, uint64_t first_byte);
    size_t heads;  // value heads; 0: the layer has no state
    uint64_t first;
    size_t matrix_floats = 0, tail_row = 0, tail_rows = 0, head_bytes = 0;
    uint64_t end() const { return first + heads * head_bytes; }
  };

  StateShape(const model::ModelConfig&, size_t blocks);
  size_t blocks;
  std::vector<Layer> layers;  // the layers of the config
  uint64_t block_bytes() const { return layers.empty() ? 0 : layers.back().end(); }
  uint64_t bytes() const { return blocks * block_bytes(); }
};

struct HeadState {
  float* matrix;
  float* scale;
  float* tail;
};

class StateRegion {
 public:
  StateRegion(const StateShape&, NumaNodeId node);
  const StateShape& shape() const { return shape_; }
  HeadState head(SlotId slot, size_t layer, size_t value_head) const;

 private:
  StateShape shape_;
  topology::Arena arena_;
  std::byte* base_ = nullptr;
};

}  // namespace larder::attention_node
