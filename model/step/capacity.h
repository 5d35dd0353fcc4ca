// Capacity: how many sequences of what length an engine holds, and how many rows it computes at
// once. One value, passed on from the command line or the manifest to whoever sizes itself by it:
// plans, links, stages, engine. As an option a 0 lets the Plan choose; in a Plan none is left but
// where 0 has a meaning.
#pragma once

#include <cstddef>

namespace larder::model::inline step {

struct Capacity {
  size_t slots = 1;    // sequences that the KV cache holds at once
  size_t context = 0;  // positions of a slot; 0: the model's trained context, at most 4096
  // Tokens that the KV caches hold for all slots together, and for ended sequences from which
  // prompts may go on. Sequences that outgrow them wait, and are computed again. 0: a full context
  // for each slot.
  size_t kv_tokens = 0;
  size_t cached_tokens = 0;  // more tokens, of ended sequences only
  // The most rows of a micro-batch. 0: as many as fit in L2 with their FFN activations, 64 to 256;
  // with experts up to 1,024.
  size_t max_batch_tokens = 0;
  size_t max_in_flight = 1;  // the most micro-batches in flight

  bool operator==(const Capacity&) const = default;
};

}  // namespace larder::model::step
