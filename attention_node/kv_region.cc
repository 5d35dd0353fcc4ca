#include "attention_node/kv_region.h"

#include <algorithm>

#include "base/check.h"

namespace larder::attention_node {
namespace {

constexpr size_t kChunkPages = kernels::kChunkPositions / kernels::kPagePositions;

}  // namespace

KvTable KvTable::Contiguous(const KvShape& shape) {
  KvTable table;
  table.chunks_ = shape.chunks;
  for (SlotId slot(0); slot.index() < shape.slots; ++slot) {
    const uint64_t keys = slot.index() * shape.slot_bytes();
    const uint64_t values = keys + shape.pages * shape.key_page_bytes;
    for (size_t page = 0; page < shape.pages; page += kChunkPages)
      table.places_.push_back({keys + page * shape.key_page_bytes, values + page * shape.value_page_bytes});
  }
  return table;
}

KvRegion::KvRegion(const KvShape& shape, const KvTable& table, NumaNodeId node)
    : shape_(shape), arena_(shape.bytes(), node) {
  auto* base = reinterpret_cast<uint8_t*>(arena_.data());
  const uint64_t last_head = shape.slot_bytes() - shape.head_bytes;
  for (SlotId slot(0); slot.index() < shape.slots; ++slot) {
    for (size_t chunk = 0; chunk < shape.chunks; ++chunk) {
      const KvTable::Place& place = table.at(slot, chunk);
      const size_t pages = std::min(kChunkPages, shape.pages - chunk * kChunkPages);
      LARDER_CHECK(place.keys + last_head + pages * shape.key_page_bytes <= shape.bytes() &&
                       place.values + last_head + pages * shape.value_page_bytes <= shape.bytes(),
                   "slot {} chunk {} at {}, {}", slot.value, chunk, place.keys, place.values);
      first_.push_back({base + place.keys, base + place.values});
    }
  }
}

}  // namespace larder::attention_node
