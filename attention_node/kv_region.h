// KvRegion: the KV cache of one attention socket, INT8: pools of chunks of kChunkPositions
// positions, the unit that attention works on, and a table of the chunks that each slot is a list
// of. Several slots may list the same chunk: the common beginning of their sequences, which is not
// written again. Layers without windows, and those with windows of each length, are classes of
// memory (model/step/kv_class.h): a chunk holds for each layer of its class and KV head its key
// pages, then its value pages (kernels/formats/kv_page.h), as many and as large as the layer's kind
// has. Layers with states are the last class (state_region.h); a slot lists one chunk of it. The
// thread that appends for a head touches its pages first, so a chunk that was never used takes no
// memory. A chunk's parts, each of a KV head or of a value head's state, lie on the NUMA nodes of
// their threads: on each node those of all chunks together, in one arena.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
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
          size_t value_pages)
        : of_class(class_number),
          kv_heads(heads),
          key_page_bytes(kernels::kKeyPanel.bytes(key_blocks)),
          value_page_bytes(kernels::ValuePage{value_blocks}.bytes()),
          key_bytes(kKeyPages * value_pages * key_page_bytes),
          head_bytes(key_bytes + value_pages * value_page_bytes) {}
    size_t of_class, kv_heads;
    size_t first_part = 0;  // the first head's; the others' follow
    size_t key_page_bytes, value_page_bytes;
    size_t key_bytes;   // the part of head_bytes that is keys
    size_t head_bytes;  // bytes of one KV head
  };
  // What one thread writes of a chunk: the pages of a layer's KV head, or the state of a recurrent
  // layer's value head. The parts of a class make up its chunks, in this order.
  struct Part {
    size_t of_class, layer, head;
    size_t bytes;
    bool state = false;
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
  std::vector<Part> parts;
  std::vector<size_t> first_state;  // [layer]: the part of its first value head's state; the
                                    // others' follow
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
  // Where a part is to lie; invalid: anywhere.
  using NodeOfPart = std::function<NumaNodeId(const KvShape::Part&)>;
  // Until they are mapped, the slots list the pools' chunks in order, each slot its own if there
  // are enough. Throws Error if there is not enough memory.
  KvRegion(const KvShape&, const NodeOfPart&);
  const KvShape& shape() const { return shape_; }
  // index: position / kChunkPositions.
  KvChunk chunk(SlotId slot, size_t index, size_t layer, size_t kv_head) const {
    const KvShape::Layer& of = shape_.layers[layer];
    return At(table_[(of.of_class * shape_.slots + slot.index()) * shape_.chunks + index], of,
              kv_head);
  }
  // The state of a recurrent layer's value head, in the slot's chunk of that class, or in that
  // chunk of it.
  uint8_t* state(SlotId slot, size_t layer, size_t value_head) const {
    return places_[shape_.first_state[layer] + value_head].of(
        table_[(shape_.classes.size() - 1) * shape_.slots * shape_.chunks +
               slot.index() * shape_.chunks]);
  }
  uint8_t* state(uint32_t chunk, size_t layer, size_t value_head) const {
    return places_[shape_.first_state[layer] + value_head].of(chunks_[chunk].nth);
  }
  bool HasStates(uint32_t chunk) const { return shape_.classes[chunks_[chunk].of_class].states; }
  // Null, or why the update is not valid for this region.
  const char* Check(const model::KvUpdate&) const;
  // Enters the update's chunk in the slot's list. Between micro-batches; the update must have
  // passed Check.
  void Map(const model::KvUpdate& update) {
    const Chunk& chunk = chunks_[update.chunk];
    table_[(chunk.of_class * shape_.slots + update.slot.index()) * shape_.chunks + update.index] =
        chunk.nth;
  }
  // Copies what the update says for one layer and KV head, in whole pages; nothing, if the chunks
  // are of another class than the layer.
  void Copy(const model::KvUpdate&, size_t layer, size_t kv_head) const;
  // All keys and values of a chunk, layer by layer, each with all its KV heads; or all its states.
  topology::ScatteredBytes memory(uint32_t chunk) const;
  const topology::NodeArenas& arenas() const { return arenas_; }

 private:
  struct Chunk {
    uint32_t nth = 0;  // of its class
    uint32_t of_class = 0;
  };
  // Where a part lies, in each chunk of its class.
  struct Place {
    uint8_t* first = nullptr;
    size_t stride = 0;  // bytes
    uint8_t* of(uint32_t nth) const { return first + nth * stride; }
  };
  KvChunk At(uint32_t nth, const KvShape::Layer& of, size_t kv_head) const {
    uint8_t* const keys = places_[of.first_part + kv_head].of(nth);
    return {keys, keys + of.key_bytes};
  }

  KvShape shape_;
  topology::NodeArenas arenas_;
  std::vector<Place> places_;    // [part]
  std::vector<Chunk> chunks_;    // by number
  std::vector<uint32_t> table_;  // [class][slot][index]: the chunk, among those of its class
};

}  // namespace larder::attention_node
