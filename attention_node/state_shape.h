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
    explicit Layer(const model::LayerSpec&);
    size_t heads;  // value heads; 0: the layer has no state
    size_t matrix_floats = 0, tail_row = 0, tail_rows = 0, head_bytes = 0;
  };

  explicit StateShape(const model::ModelConfig&);
  std::vector<Layer> layers;  // the layers of the config
  uint64_t bytes() const;     // of all
};

}  // namespace larder::attention_node
