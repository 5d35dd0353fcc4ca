// KvUpdate: a change to an attention socket's table of KV chunks (attention_node/kv_region.h),
// which comes with the first micro-batch whose rows need it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/ids.h"
#include "base/memory.h"
#include "base/range.h"
#include "model/step/capacity.h"

namespace larder::model::inline step {

// From this micro-batch on, entry `index` of the slot's list is `chunk`, a number among the stage's
// chunks (in a message to an attention socket: among that socket's). If copied_positions > 0, the
// keys and values of that many positions are first copied from chunk `copied_from`, before the
// micro-batch appends its own; or all its states, if that is what it has. Copies are made in the
// order of the updates.
struct KvUpdate {
  SlotId slot;
  uint32_t index = 0;
  uint32_t chunk = 0;
  uint32_t copied_from = 0;
  uint32_t copied_positions = 0;
  bool operator==(const KvUpdate&) const = default;

  // Null, or what is wrong with the update, given the number of slots, of chunks per slot, and of
  // chunks that this slot may use.
  const char* Problem(size_t slots, size_t slot_chunks, Range<size_t> chunks) const {
    if (slot.index() >= slots) return "KV for a slot that does not exist";
    if (index >= slot_chunks) return "KV beyond the context";
    if (!chunks.contains(chunk) || (copied_positions > 0 && !chunks.contains(copied_from)))
      return "a KV chunk that does not exist";
    return nullptr;
  }
};
static_assert(sizeof(KvUpdate) == 20 && std::is_trivially_copyable_v<KvUpdate>);

// The most updates of a micro-batch, with chunks of so many positions: one for each row, and those
// of sequences that begin with chunks of others, to which half of all is left
// (pipeline/kv/kv_chunks.h) and whose context may be a whole one.
constexpr size_t MaxKvUpdates(const Capacity& capacity, size_t chunk_positions) {
  return capacity.max_batch_tokens + 512 + 2 * CeilDiv(capacity.context, chunk_positions);
}

}  // namespace larder::model::step
