// What a sequence needs of each class of memory to go on at a position, or behind whole chunks of
// its tokens.
#pragma once

#include <cstddef>

#include "base/memory.h"
#include "base/range.h"
#include "model/layer/layer_spec.h"
#include "model/step/kv_class.h"

namespace larder::pipeline::inline kv {

// The chunks of positions by their indices in the sequence.
inline Range<size_t> NeededAt(const model::KvClass& of, size_t position, size_t chunk_positions) {
  return {model::FirstSeen(of.window, position) / chunk_positions,
          CeilDiv(position, chunk_positions)};
}

// The chunks by their indices in the sequence; of states, the chunk behind whose tokens they are.
inline Range<size_t> NeededBehind(const model::KvClass& of, size_t chunks, size_t chunk_positions) {
  if (chunks == 0) return {0, 0};
  if (of.states) return {chunks - 1, chunks};
  return NeededAt(of, chunks * chunk_positions, chunk_positions);
}

}  // namespace larder::pipeline::kv
