// KvRegion: the KV cache of one attention socket, INT8: pools of chunks of kChunkPositions
// positions, the unit that attention works on, and a table of the chunks that each slot is a list
// of. Several slots may list the same chunk: the common beginning of their sequences, which is not
// written again. Layers without windows, and those with windows of each length, are classes of
// memory (model/step/kv_class.h): a chunk holds for each layer of its class and KV head its key
// pages, then its value pages (kernels/formats/kv_page.h), as many and as large as the layer's kind
// has. Layers with states are the last class (state_region.h); a slot lists one chunk of it. The
// thread that appends for a head touches its pages first, so a chunk that was never used takes no
// memory.
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
#include "model/step/kv_class.h"
#include "model/step/kv_update.h"
#include "topology/arena.h"
#include "topology/scattered_bytes.h"

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
    const size_t chunks = CeilDiv(all.context, kernels::kChunkPositions);
    return (all.kv_tokens == 0 ? slots * chunks
                               : std::max(ShareOf(slots, all, all.kv_tokens), chunks)) +
           ShareOf(slots, all, all.cached_tokens);
  }

  // States that are kept beside those of the slots: of prompts and of ended sequences.
  static size_t KeptStates(size_t slots, const model::Capacity& all) {
    constexpr size_t kOfSlot = 3, kLeast = 8;
    return std::max(slots * kOfSlot, kLeast) +
           CeilDiv(CeilDiv(all.cached_tokens * slots, all.slots), model::kStatePositions);
  }

  // The classes of the whole model's layers: without windows, then by their windows, ascending,
  // then states. The capacity's context is
  // not 0.
  static std::vector<model::KvClass> ClassesOf(const model::ModelConfig&, const model::Capacity&);
  // The chunks of each class, as PoolChunks says for one without a window, KeptStates for states.
  static std::vector<size_t> Pools(std::span<const model::KvClass>, size_t slots,
                                   const model::Capacity& all);
  // For one sequence of capacity.context.
  static KvShape OfSequence(const model::ModelConfig& config, const model::Capacity& capacity) {
    return {config, 1, capacity.context, {}, ClassesOf(config, capacity)};
  }

  // pools: the number of chunks of each class, for each attention socket whose chunks these are, in
  // the order of their numbers; empty: what a full context needs, for each slot.
  KvShape(const model::ModelConfig& config, size_t slot_count, size_t context_tokens,
          std::span<const size_t> pool_chunks = {},
          std::vector<model::KvClass> of_classes = {model::KvClass{}});

  // The pages of one layer in a chunk of its class.
  struct Layer {
    // key_blocks, value_blocks: of a head.
    Layer(size_t class_number, size_t heads, size_t key_blocks, size_t value_blocks,
          size_t value_pages, uint64_t first_byte)
        : of_class(class_number),
          kv_heads(heads),
          first(first_byte),
          key_page_bytes(kernels::kKeyPanel.bytes(key_blocks)),
          value_page_bytes(kernels::ValuePage{value_blocks}.bytes()),
          key_bytes(kKeyPages * value_pages * key_page_bytes),
          head_bytes(key_bytes + value_pages * value_page_bytes) {}
    size_t of_class, kv_heads;
    uint64_t first;  // first byte in the chunk
    size_t key_page_bytes, value_page_bytes;
    size_t key_bytes;   // the part of head_bytes that is keys
    size_t head_bytes;  // bytes of one KV head
    uint64_t end() const { return first + kv_heads * head_bytes; }
  };
  static constexpr size_t kKeyPages = kernels::kValuePagePositions / kernels::kPagePositions;

  size_t slots, context;
  size_t chunks;       // chunks of a slot at full context
  size_t pool = 0;     // number of chunks in all pools
  size_t value_pages;  // value pages of a chunk; there are two key pages for each
  std::vector<model::KvClass> classes;
  std::vector<uint64_t> class_bytes;  // [class]: of a chunk
  std::vector<size_t> pools;          // [socket * classes + class]: chunks
  std::vector<Layer> layers;          // the layers of the config
  // The most chunks that a sequence needs at once.
  size_t sequence_chunks(size_t of_class) const {
    const size_t most = classes[of_class].chunks;
    return most == 0 ? chunks : std::min(most, chunks);
  }
  uint64_t chunk_bytes() const;  // of one chunk of each class
  uint64_t slot_bytes() const;   // a sequence at full context
  uint64_t bytes() const;        // all pools

 private:
  static size_t ShareOf(size_t slots, const model::Capacity& all, size_t tokens) {
    return CeilDiv(CeilDiv(tokens * slots, all.slots), kernels::kChunkPositions);
  }
};

// The key pages and value pages of one chunk, for one layer and KV head.
struct KvChunk {
  uint8_t* keys;
  uint8_t* values;
};

class KvRegion {
 public:
  // Until they are mapped, the slots list the pools' chunks in order, each slot its own if there
  // are enough.
  KvRegion(const KvShape&, NumaNodeId node);
  const KvShape& shape() const { return shape_; }
  // index: position / kChunkPositions.
  KvChunk chunk(SlotId slot, size_t index, size_t layer, size_t kv_head) const {
    const KvShape::Layer& of = shape_.layers[layer];
    return At(table_[(of.of_class * shape_.slots + slot.index()) * shape_.chunks + index], of,
              kv_head);
  }
  // The slot's chunk of the class of states.
  uint8_t* states(SlotId slot) const {
    return base_ + table_[(shape_.classes.size() - 1) * shape_.slots * shape_.chunks +
                          slot.index() * shape_.chunks];
  }
  // Of a chunk of that class.
  uint8_t* states(uint32_t chunk) const { return base_ + chunks_[chunk].first; }
  bool HasStates(uint32_t chunk) const { return shape_.classes[chunks_[chunk].of_class].states; }
  // Null, or why the update is not valid for this region.
  const char* Check(const model::KvUpdate&) const;
  // Enters the update's chunk in the slot's list. Between micro-batches; the update must have
  // passed Check.
  void Map(const model::KvUpdate& update) {
    const Chunk& chunk = chunks_[update.chunk];
    table_[(chunk.of_class * shape_.slots + update.slot.index()) * shape_.chunks + update.index] =
        chunk.first;
  }
  // Copies what the update says for one layer and KV head, in whole pages; nothing, if the chunks
  // are of another class than the layer.
  void Copy(const model::KvUpdate&, size_t layer, size_t kv_head) const;
  // All keys and values of a chunk, layer by layer, each with all its KV heads; or all its states.
  topology::ScatteredBytes memory(uint32_t chunk) const {
    return topology::ScatteredBytes(
        {base_ + chunks_[chunk].first, shape_.class_bytes[chunks_[chunk].of_class]});
  }
  const topology::Arena& arena() const { return arena_; }

 private:
  struct Chunk {
    uint64_t first = 0;  // byte of the arena
    uint32_t of_class = 0;
  };
  KvChunk At(uint64_t first, const KvShape::Layer& of, size_t kv_head) const {
    uint8_t* keys = base_ + first + of.first + kv_head * of.head_bytes;
    return {keys, keys + of.key_bytes};
  }

  KvShape shape_;
  topology::Arena arena_;
  uint8_t* base_;
  std::vector<Chunk> chunks_;    // by number
  std::vector<uint64_t> table_;  // [class][slot][index]: where the chunk begins
};

}  // namespace larder::attention_node
