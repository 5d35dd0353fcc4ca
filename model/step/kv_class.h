// KvClass: a class of KV memory: layers whose sequences need the same positions, or those that have
// states. Each class has chunks of its own layers, its own pools of them, and its own tables. A
// chunk's number says of which class it is.
#pragma once

#include <cstddef>

namespace larder::model::inline step {

// The states of a long prompt are kept at least every so many positions.
inline constexpr size_t kStatePositions = 2048;

struct KvClass {
  size_t window = 0;  // LayerSpec::window of its layers; 0: all positions
  // The most chunks that a sequence needs at once; 0: those of a full context.
  size_t chunks = 0;
  // Of recurrent layers: a chunk has their states at one position of a sequence. The last class.
  bool states = false;
  bool operator==(const KvClass&) const = default;
};

}  // namespace larder::model::step
