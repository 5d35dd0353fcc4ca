#include <algorithm>

#include "attention_node/state_region.h"
#include "base/memory.h"

namespace larder::attention_node {

HeadState StateRegion::head(SlotId slot, size_t layer, size_t value_head) const {
  const StateShape::Layer& of = shape_.layers[layer];
  uint8_t* const at = region_.state(slot, layer, value_head);
  uint8_t* const scale = at + RoundUp(of.matrix_floats * sizeof(float), kCacheLineBytes);
  return {reinterpret_cast<float*>(at), reinterpret_cast<float*>(scale),
          reinterpret_cast<float*>(scale + kCacheLineBytes)};
}

void StateRegion::Copy(const model::KvUpdate& update, size_t layer, size_t value_head) const {
  if (update.copied_positions == 0 || !region_.HasStates(update.chunk)) return;
  std::copy_n(region_.state(update.copied_from, layer, value_head), shape_.layers[layer].head_bytes,
              region_.state(update.chunk, layer, value_head));
}

}  // namespace larder::attention_node
