// StateShape: how the states of recurrent layers (model::Recurrence) lie in a chunk of KV memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config/config.h"

namespace larder::attention_node {

struct StateShape {
  // The state of one value head. matrix: the T of kernels/recurrent/recurrent.h,
  // [value size / kStateColumns][key size][kStateColumns], or Mamba-2's S, in kMambaColumns; then
  // G, alone in a cache line; then the inputs of the convolution of the last taps - 1 tokens, [taps
  // - 1][tail_row]: query, key, value.
  struct Layer {
    Layer(const model::LayerSpec&, uint64_t first_byte);
    size_t heads;  // value heads; 0: the layer has no state
    uint64_t first;
    size_t matrix_floats = 0, tail_row = 0, tail_rows = 0, head_bytes = 0;
    uint64_t end() const { return first + heads * head_bytes; }
  };

  explicit StateShape(const model::ModelConfig&);
  std::vector<Layer> layers;  // the layers of the config
  uint64_t bytes() const { return layers.empty() ? 0 : layers.back().end(); }
};

}  // namespace larder::attention_node
