// KvRegion: the KV cache of one attention socket, INT8: a pool of chunks of kChunkPositions
// positions, the unit that attention works on, and a table of the chunks that each slot is a list
// of. Several slots may list the same chunk: the common beginning of their sequences, which is not
// written again. A chunk holds for each layer and KV head its key pages, then its value pages
// (kernels/formats/kv_page.h), as many and as large as the layer's kind has. The thread that
// appends for a head touches its pages first, so a chunk that was never used takes no memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/formats/kv_page.h"
#include "model/config/config.h"
#include "model/step/capacity.h"
#include "model/step/kv_update.h"
#include "topology/arena.h"

namespace larder::attention_node {

struct KvShape {
  static constexpr size_t kMaxContext = size_t{1} << 20;  // tokens per slot
  // The default: the model's training context, at most 4096.
  static size_t DefaultContext(const model::ModelConfig& config) {
    return std::clamp<size_t>(config.trained_context, 1, 4096);
  }

  // The share of `slots`, some of all.slots, in the chunks for all.kv_tokens tokens (0: full
  // contexts) and for all.cached_tokens tokens of ended sequences; at least one full context.
  static size_t PoolChunks(size_t slots, const model::Capacity& all) {
    const auto share = [&](size_t tokens) {
      return CeilDiv(CeilDiv(tokens * slots, all.slots), kernels::kChunkPositions);
    };
    const size_t chunks = CeilDiv(all.context, kernels::kChunkPositions);
    return (all.kv_tokens == 0 ? slots * chunks : std::max(share(all.kv_tokens), chunks)) +
           share(all.cached_tokens);
  }

  // pool: chunks of all slots together; 0: a full context for each slot.
  KvShape(const model::ModelConfig& config, size_t slot_count, size_t context_tokens,
          size_t pool_chunks = 0)
      : slots(slot_count),
        context(context_tokens),
        chunks(CeilDiv(context_tokens, kernels::kChunkPositions)),
        pool(pool_chunks == 0 ? slot_count * chunks : pool_chunks),
        value_pages(CeilDiv(std::min(context_tokens, kernels::kChunkPositions),
                            kernels::kValuePagePositions)) {
    for (size_t i = 0; i < config.layers; ++i) {
      const model::LayerSizes& sizes = config.layer(i).sizes;
      layers.push_back(Layer(sizes.kv_heads, CeilDiv(sizes.head_size, kernels::kBlock), value_pages,
                             layers.empty() ? 0 : layers.back().end()));
    }
  }

  // The pages of one layer in a chunk.
  struct Layer {
    Layer(size_t heads, size_t head_blocks, size_t value_pages, uint64_t first_byte)
        : kv_heads(heads),
          blocks(head_blocks),
          first(first_byte),
          key_page_bytes(kernels::kKeyPanel.bytes(blocks)),
          value_page_bytes(kernels::ValuePage{blocks}.bytes()),
          key_bytes(kKeyPages * value_pages * key_page_bytes),
          head_bytes(key_bytes + value_pages * value_page_bytes) {}
    size_t kv_heads, blocks;
    uint64_t first;  // first byte in the chunk
    size_t key_page_bytes, value_page_bytes;
    size_t key_bytes;   // the part of head_bytes that is keys
    size_t head_bytes;  // bytes of one KV head
    uint64_t end() const { return first + kv_heads * head_bytes; }
  };
  static constexpr size_t kKeyPages = kernels::kValuePagePositions / kernels::kPagePositions;

  size_t slots, context;
  size_t chunks;              // chunks of a slot at full context
  size_t pool;                // number of chunks in the pool
  size_t value_pages;         // value pages of a chunk; there are two key pages for each
  std::vector<Layer> layers;  // the layers of the config
  uint64_t chunk_bytes() const { return layers.empty() ? 0 : layers.back().end(); }
  uint64_t slot_bytes() const { return chunks * chunk_bytes(); }  // a sequence at full context
  uint64_t bytes() const { return pool * chunk_bytes(); }
};

// The key pages and value pages of one chunk, for one layer and KV head.
struct KvChunk {
  uint8_t* keys;
  uint8_t* values;
};

class KvRegion {
 public:
  // Until they are mapped, the slots list the pool's chunks in order, each slot its own if there
  // are enough.
  KvRegion(const KvShape&, NumaNodeId node);
  const KvShape& shape() const { return shape_; }
  // index: position / kChunkPositions.
  KvChunk chunk(SlotId slot, size_t index, size_t layer, size_t kv_head) const {
    return At(table_[slot.index() * shape_.chunks + index], layer, kv_head);
  }
  // Null, or why the update is not valid for this region.
  const char* Check(const model::KvUpdate&) const;
  // Enters the update's chunk in the slot's list. Between micro-batches; the update must have
  // passed Check.
  void Map(const model::KvUpdate& update) {
    table_[update.slot.index() * shape_.chunks + update.index] = update.chunk;
  }
  // Copies what the update says for one layer and KV head, in whole pages.
  void Copy(const model::KvUpdate&, size_t layer, size_t kv_head) const;
  // All keys and values of a chunk, layer by layer, each with all its KV heads.
  std::span<uint8_t> memory(uint32_t chunk) const {
    return {base_ + chunk * shape_.chunk_bytes(), shape_.chunk_bytes()};
  }
  const topology::Arena& arena() const { return arena_; }

 private:
  KvChunk At(uint32_t chunk, size_t layer, size_t kv_head) const {
    const KvShape::Layer& of = shape_.layers[layer];
    uint8_t* keys = base_ + chunk * chunk_bytes_ + of.first + kv_head * of.head_bytes;
    return {keys, keys + of.key_bytes};
  }

  KvShape shape_;
  const uint64_t chunk_bytes_;
  topology::Arena arena_;
  uint8_t* base_;
  std::vector<uint32_t> table_;  // [slot][index]: the chunk
};

}  // namespace larder::attention_node
