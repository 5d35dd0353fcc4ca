// KvRegion: the KV cache of one attention socket: slots x layers x KV heads, INT8, head-major: for each
// (slot, layer, KV head) first all key pages, then all value pages (kernels/formats/kv_page.h), contiguous.
// No page table: positions are offsets. The thread that owns a head appends to it and so touches it first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/formats/kv_page.h"
#include "model/config/config.h"
#include "topology/arena.h"

namespace larder::attention_node {

struct KvShape {
  static constexpr size_t kMaxContext = size_t{1} << 20;  // tokens of a slot
  // A slot's where nobody says: what the model was trained on, at most 4096.
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
        key_page_bytes(kernels::kKeyPanel.bytes(blocks)),
        value_page_bytes(kernels::ValuePage{blocks}.bytes()),
        head_bytes(pages * (key_page_bytes + value_page_bytes)) {}
  size_t layers, kv_heads, blocks, slots, context, pages, key_page_bytes, value_page_bytes, head_bytes;
  uint64_t slot_bytes() const { return static_cast<uint64_t>(layers) * kv_heads * head_bytes; }
  uint64_t bytes() const { return slots * slot_bytes(); }
};

class KvRegion {
 public:
  KvRegion(const KvShape& shape, NumaNodeId node) : shape_(shape), arena_(shape.bytes(), node) {}
  const KvShape& shape() const { return shape_; }
  uint8_t* keys(size_t slot, size_t layer, size_t kv_head) const {
    return reinterpret_cast<uint8_t*>(arena_.data()) +
           ((slot * shape_.layers + layer) * shape_.kv_heads + kv_head) * shape_.head_bytes;
  }
  uint8_t* values(size_t slot, size_t layer, size_t kv_head) const {
    return keys(slot, layer, kv_head) + shape_.pages * shape_.key_page_bytes;
  }
  const topology::Arena& arena() const { return arena_; }

 private:
  KvShape shape_;
  topology::Arena arena_;
};

}  // namespace larder::attention_node
