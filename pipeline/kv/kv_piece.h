// KvPiece: what a sequence has in one chunk of KV memory, as it is moved to files and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "topology/scattered_bytes.h"

namespace larder::pipeline::inline kv {

struct KvPiece {
  uint32_t of_class = 0;  // of memory (model/step/kv_class.h)
  size_t index = 0;    // of the chunk in the sequence; of states: of the chunk behind whose tokens
                       // they are
  uint32_t chunk = 0;  // its number
  bool moves = true;   // false: it is at both places, and counts as used
  topology::ScatteredBytes memory = {};  // empty in a chain, where it is elsewhere
};

}  // namespace larder::pipeline::kv
