// KvRegion: the KV cache of one attention socket, INT8, in chunks of kChunkPositions positions, the unit that
// attention works on. A slot is a list of chunks, and a table gives each chunk's place. A chunk holds for
// each layer and KV head its key pages and its value pages (kernels/formats/kv_page.h), each contiguous. The
// thread that appends for a head touches its pages first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kernels/formats/kv_page.h"
#include "model/config/config.h"
#include "topology/arena.h"

namespace larder::attention_node {

struct KvShape {
  static constexpr size_t kMaxContext = size_t{1} << 20;  // tokens per slot
  // The default: the model's training context, at most 4096.
  static size_t DefaultContext(const model::ModelConfig& config) {
    return std::clamp<size_t>(config.trained_context, 1, 4096);
  }

  KvShape(const model::ModelConfig& config, size_t slot_count, size_t context_tokens)
      : layers(config.layers),
        kv_heads(config.kv_heads),
        blocks(CeilDiv(config.head_size, kernels::kBlock)),
        slots(slot_count),
        context(context_tokens),
        pages(CeilDiv(context_tokens, kernels::kPagePositions)),
        chunks(CeilDiv(context_tokens, kernels::kChunkPositions)),
        key_page_bytes(kernels::kKeyPanel.bytes(blocks)),
        value_page_bytes(kernels::ValuePage{blocks}.bytes()),
        head_bytes(pages * (key_page_bytes + value_page_bytes)) {}
  size_t layers, kv_heads, blocks, slots, context, pages, chunks, key_page_bytes, value_page_bytes,
      head_bytes;
  uint64_t slot_bytes() const { return static_cast<uint64_t>(layers) * kv_heads * head_bytes; }
  uint64_t bytes() const { return slots * slot_bytes(); }
};

// The places of each slot's chunks, in bytes from the region's start, for layer 0 and KV head 0. The other
// layers and heads follow at multiples of KvShape::head_bytes. A slot's last chunk may have fewer pages, and
// its place has room for those only.
class KvTable {
 public:
  struct Place {
    uint64_t keys, values;
  };
  // Places each slot's chunks one after the other: per layer and KV head all key pages, then all value pages.
  static KvTable Contiguous(const KvShape&);

  Place& at(SlotId slot, size_t chunk) { return places_[slot.index() * chunks_ + chunk]; }
  const Place& at(SlotId slot, size_t chunk) const { return places_[slot.index() * chunks_ + chunk]; }

 private:
  size_t chunks_ = 0;          // per slot
  std::vector<Place> places_;  // [slot][chunk]
};

// The key pages and value pages of one chunk, for one layer and KV head.
struct KvChunk {
  uint8_t* keys;
  uint8_t* values;
};

class KvRegion {
 public:
  // The table's places must lie within the shape's bytes and must not overlap.
  KvRegion(const KvShape&, const KvTable&, NumaNodeId node);
  const KvShape& shape() const { return shape_; }
  // chunk: position / kChunkPositions.
  KvChunk chunk(SlotId slot, size_t chunk, size_t layer, size_t kv_head) const {
    const KvChunk& first = first_[slot.index() * shape_.chunks + chunk];
    const size_t at = (layer * shape_.kv_heads + kv_head) * shape_.head_bytes;
    return {first.keys + at, first.values + at};
  }
  const topology::Arena& arena() const { return arena_; }

 private:
  KvShape shape_;
  topology::Arena arena_;
  std::vector<KvChunk> first_;  // the table as addresses for layer 0 and KV head 0: [slot][chunk]
};

}  // namespace larder::attention_node
