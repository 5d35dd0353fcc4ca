#include "attention_node/state_shape.h"

#include "base/memory.h"

namespace larder::attention_node {

StateShape::Layer::Layer(const model::LayerSpec& layer, uint64_t first_byte)
    : heads(layer.recurrent() ? layer.state_sizes().heads : 0), first(first_byte) {
  if (heads == 0) return;
  const model::Recurrence& of = layer.recurrence;
  const size_t size = layer.state_sizes().head_size;
  matrix_floats = of.key_size * size;
  tail_row = 2 * of.key_size + size;
  tail_rows = of.taps - 1;
  head_bytes = RoundUp(matrix_floats * sizeof(float), kCacheLineBytes) + kCacheLineBytes +
               RoundUp(tail_rows * tail_row * sizeof(float), kCacheLineBytes);
}

StateShape::StateShape(const model::ModelConfig& config) {
  for (size_t i = 0; i < config.layers; ++i)
    layers.emplace_back(config.layer(i), layers.empty() ? 0 : layers.back().end());
}

}  // namespace larder::attention_node
