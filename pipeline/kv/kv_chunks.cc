#include "pipeline/kv/kv_chunks.h"

#include <algorithm>

#include "base/check.h"

namespace larder::pipeline::inline kv {
namespace {

std::vector<Range<size_t>> PoolsOfStates(const KvChunksShape& shape) {
  std::vector<Range<size_t>> pools;
  const size_t classes = shape.classes.size();
  for (size_t i = classes - 1; shape.states() && i < shape.chunk_ends.size(); i += classes)
    pools.push_back({i == 0 ? 0 : shape.chunk_ends[i - 1], shape.chunk_ends[i]});
  return pools;
}

}  // namespace

KvChunks::KvChunks(const KvChunksShape& shape)
    : shape_(shape),
      slot_chunks_(shape.slot_chunks()),
      socket_(shape.capacity.slots + shape.kept),
      lengths_(shape.capacity.slots + shape.kept),
      keeps_(shape.capacity.slots + shape.kept),
      uses_(shape.capacity.slots + shape.kept),
      users_(shape.chunk_ends.back()),
      pools_(shape.chunk_ends.size()),
      states_(shape.capacity.slots + shape.kept, shape.capacity.slots, PoolsOfStates(shape)),
      updates_(shape.max_updates) {
  LARDER_CHECK(pools_.size() ==
               shape_.classes.size() * std::max<size_t>(shape_.slot_ends.size(), 1));
  for (const model::KvClass& of : shape_.classes) {
    if (of.states) continue;
    classes_.push_back({.window = of.window,
                        .first = std::vector<size_t>(lists()),
                        .end = std::vector<size_t>(lists()),
                        .table = std::vector<uint32_t>(lists() * slot_chunks_)});
  }
  for (SlotId slot(0); slot.index() < shape_.capacity.slots; ++slot) {
    const auto& ends = shape_.slot_ends;
    socket_[slot.index()] =
        static_cast<uint32_t>(std::upper_bound(ends.begin(), ends.end(), slot) - ends.begin());
  }
  const auto slots_of = [this](size_t socket) {
    return static_cast<size_t>(std::ranges::count(std::span(socket_).first(shape_.capacity.slots),
                                                  static_cast<uint32_t>(socket)));
  };
  for (size_t i = 0; i < pools_.size(); ++i) {
    const size_t chunks = shape_.chunk_ends[i] - (i == 0 ? 0 : shape_.chunk_ends[i - 1]);
    const model::KvClass& of = shape_.classes[i % shape_.classes.size()];
    const size_t needed = of.states        ? slots_of(i / shape_.classes.size())
                          : of.chunks == 0 ? slot_chunks_
                                           : std::min(of.chunks, slot_chunks_);
    LARDER_CHECK(chunks >= needed, "{} KV chunks; a slot needs {}", chunks, needed);
    pools_[i].free_list.resize(chunks);
  }
  ResetAll();
}

void KvChunks::ResetAll() {
  std::fill(lengths_.begin(), lengths_.end(), 0);
  std::fill(keeps_.begin(), keeps_.end(), 0);
  for (Class& of : classes_) {
    std::fill(of.first.begin(), of.first.end(), 0);
    std::fill(of.end.begin(), of.end.end(), 0);
  }
  states_.ResetAll();
  shared_ = 0;
  updates_count_ = 0;
  std::fill(users_.begin(), users_.end(), 0);
  for (size_t i = 0; i < pools_.size(); ++i) {
    Pool& pool = pools_[i];
    pool.free = pool.free_list.size();
    // The last one is handed out first: chunks are used in order.
    for (size_t k = 0; k < pool.free; ++k)
      pool.free_list[k] = static_cast<uint32_t>(shape_.chunk_ends[i] - 1 - k);
  }
}

}  // namespace larder::pipeline::kv
