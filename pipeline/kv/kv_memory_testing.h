// Test support: what attention sockets do with KvUpdates, with numbers for keys and values.
// Included by tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "pipeline/kv/kv_chunks.h"

namespace larder::pipeline::inline kv {

class KvMemory {
 public:
  explicit KvMemory(const KvChunksShape& shape)
      : shape_(shape),
        table_(shape.classes.size() * shape.capacity.slots * shape.slot_chunks(), UINT32_MAX),
        values_(shape.chunk_ends.back() * shape.chunk_positions) {}

  void Apply(std::span<const model::KvUpdate> updates) {
    LARDER_CHECK(updates.size() <= shape_.max_updates);
    for (const model::KvUpdate& update : updates) {
      // Of which pool its chunks are, and so of which class.
      const auto end = std::upper_bound(shape_.chunk_ends.begin(), shape_.chunk_ends.end(),
                                        size_t{update.chunk});
      const auto pool = static_cast<size_t>(end - shape_.chunk_ends.begin());
      LARDER_CHECK(pool < shape_.chunk_ends.size());
      LARDER_CHECK(update.Problem(shape_.capacity.slots, shape_.slot_chunks(),
                                  {pool == 0 ? 0 : shape_.chunk_ends[pool - 1],
                                   shape_.chunk_ends[pool]}) == nullptr);
      entry(pool % shape_.classes.size(), update.slot, update.index) = update.chunk;
      LARDER_CHECK(update.copied_positions < shape_.chunk_positions);
      const bool states = shape_.classes[pool % shape_.classes.size()].states;
      const bool whole = states && update.copied_positions > 0;
      for (size_t i = 0; i < (whole ? shape_.chunk_positions : update.copied_positions); ++i) {
        values_[update.chunk * shape_.chunk_positions + i] =
            values_[update.copied_from * shape_.chunk_positions + i];
      }
    }
  }
  std::span<uint8_t> memory(uint32_t chunk) {
    return {reinterpret_cast<uint8_t*>(&values_[chunk * shape_.chunk_positions]), chunk_bytes()};
  }
  size_t chunk_bytes() const { return shape_.chunk_positions * sizeof(uint64_t); }
  uint64_t& at(SlotId slot, size_t position, size_t of_class = 0) {
    const uint32_t chunk = entry(of_class, slot, position / shape_.chunk_positions);
    return values_.at(chunk * shape_.chunk_positions + position % shape_.chunk_positions);
  }

 private:
  uint32_t& entry(size_t of_class, SlotId slot, size_t index) {
    return table_[(of_class * shape_.capacity.slots + slot.index()) * shape_.slot_chunks() + index];
  }

  KvChunksShape shape_;
  std::vector<uint32_t> table_;
  std::vector<uint64_t> values_;
};

}  // namespace larder::pipeline::kv
