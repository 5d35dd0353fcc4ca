#include "attention_node/state_region.h"
#include "base/memory.h"

namespace larder::attention_node {

HeadState StateRegion::head(SlotId slot, size_t layer, size_t value_head) const {
  const StateShape::Layer& of = shape_.layers[layer];
  std::byte* const at =
      base_ + slot.index() * shape_.block_bytes() + of.first + value_head * of.head_bytes;
  std::byte* const scale = at + RoundUp(of.matrix_floats * sizeof(float), kCacheLineBytes);
  return {reinterpret_cast<float*>(at), reinterpret_cast<float*>(scale),
          reinterpret_cast<float*>(scale + kCacheLineBytes)};
}

}  // namespace larder::attention_node
