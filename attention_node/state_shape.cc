#include "attention_node/state_shape.h"

#include "base/memory.h"

namespace larder::attention_node {

StateShape::Layer::Layer(const model::LayerSpec& layer)
    : heads(layer.recurrent() ? layer.state_sizes().heads : 0) {
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
  for (size_t i = 0; i < config.layers; ++i) layers.emplace_back(config.layer(i));
}

uint64_t StateShape::bytes() const {
  uint64_t bytes = 0;
  for (const Layer& layer : layers) bytes += layer.heads * layer.head_bytes;
  return bytes;
}

}  // namespace larder::attention_node
