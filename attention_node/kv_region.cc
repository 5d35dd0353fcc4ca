#include "attention_node/kv_region.h"

#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "attention_node/state_shape.h"
#include "base/check.h"
#include "base/memory.h"

namespace larder::attention_node {
namespace {

// Chunks that hold what a window sees from any row of a micro-batch, wherever they begin.
size_t ChunksOfWindow(size_t window, size_t rows) {
  return CeilDiv(window - 1 + rows - 1, kernels::kChunkPositions) + 1;
}

constexpr size_t kUsualRows = 256;  // of a micro-batch, while a Plan has not said

}  // namespace

std::vector<model::KvClass> KvShape::ClassesOf(const model::ModelConfig& config,
                                               const model::Capacity& capacity) {
  std::set<size_t> windows;
  for (const uint8_t kind : config.kind_of) {
    if (config.kinds[kind].attends()) windows.insert(config.kinds[kind].window);
  }
  const size_t rows = capacity.max_batch_tokens != 0 ? capacity.max_batch_tokens : kUsualRows;
  std::vector<model::KvClass> classes;
  classes.reserve(windows.size() + 1);
  for (const size_t window : windows)
    classes.push_back({window, window == 0 ? 0 : ChunksOfWindow(window, rows)});
  if (classes.empty()) classes.emplace_back();
  if (config.recurrent()) classes.push_back({.chunks = 1, .states = true});
  return classes;
}

std::vector<size_t> KvShape::Pools(std::span<const model::KvClass> classes, size_t slots,
                                   const model::Capacity& all) {
  const size_t full = PoolChunks(slots, all), cached = ShareOf(slots, all, all.cached_tokens);
  std::vector<size_t> pools;
  for (const model::KvClass& of : classes) {
    pools.push_back(of.states        ? slots + KeptStates(slots, all)
                    : of.window == 0 ? full
                                     : std::min(full, slots * of.chunks + cached));
  }
  return pools;
}

KvShape::KvShape(const model::ModelConfig& config, size_t slot_count, size_t context_tokens,
                 std::span<const size_t> pool_chunks, std::vector<model::KvClass> of_classes)
    : slots(slot_count),
      context(context_tokens),
      chunks(CeilDiv(context_tokens, kernels::kChunkPositions)),
      value_pages(CeilDiv(std::min(context_tokens, kernels::kChunkPositions),
                          kernels::kValuePagePositions)),
      classes(std::move(of_classes)),
      class_bytes(classes.size(), 0),
      pools(pool_chunks.begin(), pool_chunks.end()) {
  for (size_t i = 0; pool_chunks.empty() && i < classes.size(); ++i)
    pools.push_back(slots * sequence_chunks(i));
  LARDER_CHECK(pools.size() % classes.size() == 0, "{} pools of {} classes of KV memory",
               pools.size(), classes.size());
  pool = std::accumulate(pools.begin(), pools.end(), size_t{0});
  for (size_t i = 0; i < config.layers; ++i) {
    const model::LayerSpec& layer = config.layer(i);
    const auto found = std::ranges::find_if(
        classes, [&](const model::KvClass& of) { return !of.states && of.window == layer.window; });
    // One class alone may be of all layers, whatever their windows.
    LARDER_CHECK(
        found != classes.end() || !layer.attends() || classes.size() == 1 || classes[1].states,
        "no class of windows of {}", layer.window);
    const size_t of_class = !layer.attends()         ? classes.size() - 1
                            : found == classes.end() ? 0
                                                     : static_cast<size_t>(found - classes.begin());
    if (layer.kv_of) {
      const size_t of = *layer.kv_of - config.first_layer;
      LARDER_CHECK(of < i, "layer {} has keys and values of layer {} of other layers", i, of);
      layers.push_back(layers[of]);
      continue;
    }
    const size_t heads = layer.attends() ? layer.sizes.kv_heads : 0;  // it has no keys
    layers.emplace_back(of_class, heads, CeilDiv(layer.sizes.head_size, kernels::kBlock),
                        CeilDiv(layer.value_size(), kernels::kBlock), value_pages);
    layers.back().first_part = parts.size();
    for (size_t head = 0; head < heads; ++head)
      parts.push_back({of_class, i, head, layers.back().head_bytes});
  }
  if (classes.back().states) {
    const StateShape states(config);
    for (size_t i = 0; i < config.layers; ++i) {
      first_state.push_back(parts.size());
      for (size_t head = 0; head < states.layers[i].heads; ++head)
        parts.push_back({classes.size() - 1, i, head, states.layers[i].head_bytes, true});
    }
  }
  for (const Part& part : parts) class_bytes[part.of_class] += part.bytes;
}

uint64_t KvShape::chunk_bytes() const {
  return std::accumulate(class_bytes.begin(), class_bytes.end(), uint64_t{0});
}

uint64_t KvShape::slot_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < classes.size(); ++i) bytes += sequence_chunks(i) * class_bytes[i];
  return bytes;
}

uint64_t KvShape::bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < pools.size(); ++i) bytes += pools[i] * class_bytes[i % classes.size()];
  return bytes;
}

KvRegion::KvRegion(const KvShape& shape, const NodeOfPart& node_of)
    : shape_(shape), places_(shape.parts.size()) {
  const size_t classes = shape_.classes.size();
  std::vector<uint32_t> chunks_of(classes, 0);
  for (size_t i = 0; i < shape_.pools.size(); ++i) {
    const size_t of_class = i % classes;
    for (size_t k = 0; k < shape_.pools[i]; ++k)
      chunks_.push_back({chunks_of[of_class]++, static_cast<uint32_t>(of_class)});
  }
  // A class's parts on a node lie one behind the other, chunk by chunk.
  struct OnNode {
    size_t bytes = 0;  // of a chunk
    std::vector<size_t> parts;
  };
  std::map<std::pair<size_t, NumaNodeId>, OnNode> on_nodes;
  for (size_t i = 0; i < shape_.parts.size(); ++i) {
    const KvShape::Part& part = shape_.parts[i];
    LARDER_CHECK(part.bytes % kCacheLineBytes == 0);  // states need it
    OnNode& on = on_nodes[{part.of_class, node_of(part)}];
    on.bytes += part.bytes;
    on.parts.push_back(i);
  }
  arenas_ = topology::NodeArenas([&](auto&& take) {
    for (const auto& [of, on] : on_nodes) {
      auto* first = reinterpret_cast<uint8_t*>(take(of.second, chunks_of[of.first] * on.bytes));
      if (first == nullptr) continue;  // counts
      for (const size_t part : on.parts) {
        places_[part] = {first, on.bytes};
        first += shape_.parts[part].bytes;
      }
    }
  });
  for (size_t c = 0; c < classes; ++c) {
    for (size_t i = 0; i < shape_.slots * shape_.chunks; ++i) {
      const size_t nth = shape_.classes[c].states ? i / shape_.chunks : i;
      table_.push_back(chunks_of[c] == 0 ? 0 : static_cast<uint32_t>(nth % chunks_of[c]));
    }
  }
}

topology::ScatteredBytes KvRegion::memory(uint32_t chunk) const {
  topology::ScatteredBytes bytes;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (shape_.parts[i].of_class == chunks_[chunk].of_class)
      bytes.Add({places_[i].of(chunks_[chunk].nth), shape_.parts[i].bytes});
  }
  return bytes;
}

const char* KvRegion::Check(const model::KvUpdate& update) const {
  Range<size_t> of_pool{0, 0};  // the update's chunks are of one
  for (const size_t chunks : shape_.pools) {
    of_pool = {of_pool.end, of_pool.end + chunks};
    if (of_pool.contains(update.chunk)) break;
  }
  return update.Problem(shape_.slots, shape_.chunks, of_pool);
}

}  // namespace larder::attention_node
