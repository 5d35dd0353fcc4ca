// Test support: what attention sockets do with KvUpdates, with numbers for keys and values.
// Included by tests only.
#pragma once

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
        table_(shape.capacity.slots * shape.slot_chunks(), UINT32_MAX),
        values_(shape.chunk_ends.back() * shape.chunk_positions) {}

  void Apply(std::span<const model::KvUpdate> updates) {
    LARDER_CHECK(updates.size() <= shape_.max_updates);
    for (const model::KvUpdate& update : updates) {
      LARDER_CHECK(update.Problem(shape_.capacity.slots, shape_.slot_chunks(),
                                  {0, shape_.chunk_ends.back()}) == nullptr);
      table_[update.slot.index() * shape_.slot_chunks() + update.index] = update.chunk;
      LARDER_CHECK(update.copied_positions < shape_.chunk_positions);
      for (size_t i = 0; i < update.copied_positions; ++i) {
        values_[update.chunk * shape_.chunk_positions + i] =
            values_[update.copied_from * shape_.chunk_positions + i];
      }
    }
  }
  std::span<uint8_t> memory(uint32_t chunk) {
    return {reinterpret_cast<uint8_t*>(&values_[chunk * shape_.chunk_positions]), chunk_bytes()};
  }
  size_t chunk_bytes() const { return shape_.chunk_positions * sizeof(uint64_t); }
  uint64_t& at(SlotId slot, size_t position) {
    const uint32_t chunk =
        table_[slot.index() * shape_.slot_chunks() + position / shape_.chunk_positions];
    return values_.at(chunk * shape_.chunk_positions + position % shape_.chunk_positions);
  }

 private:
  KvChunksShape shape_;
  std::vector<uint32_t> table_;
  std::vector<uint64_t> values_;
};

}  // namespace larder::pipeline::kv
