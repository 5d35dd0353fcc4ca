#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "pipeline/kv/kv_chunks.h"

namespace larder::pipeline::inline kv {

size_t KvChunks::Reserve(SlotId slot, size_t begin, size_t end) {
  size_t& length = lengths_[slot.index()];
  LARDER_CHECK(slot.index() < shape_.capacity.slots && begin <= length && begin <= end &&
               end <= shape_.capacity.context);
  const size_t in_chunk = begin % shape_.chunk_positions;  // positions of the last chunk that stay
  if (begin < length) {
    Cut(slot, CeilDiv(begin, shape_.chunk_positions));
    length = begin;
  }
  if (in_chunk > 0 && end > begin) {
    // The sequence goes on inside a chunk: in a copy, if others list it.
    const size_t index = begin / shape_.chunk_positions;
    const uint32_t chunk = entry(slot, index);
    if (users_[chunk] > 1) {
      Cut(slot, index + 1);
      listed_[slot.index()] = index;
      if (!Append(slot, chunk, in_chunk)) {
        listed_[slot.index()] = index + 1;
        return begin;
      }
      Release(pool_of(slot), chunk);
    }
  }
  while (listed_[slot.index()] * shape_.chunk_positions < end && Append(slot, 0, 0)) {
  }
  return std::min(end, listed_[slot.index()] * shape_.chunk_positions);
}

size_t KvChunks::Fork(SlotId to, SlotId from, size_t positions) {
  LARDER_CHECK(to.index() < shape_.capacity.slots && to != from && positions <= length(from));
  Reset(to);
  if (socket_of(to) != socket_of(from)) return 0;
  const size_t whole = positions / shape_.chunk_positions,
               rest = positions % shape_.chunk_positions;
  size_t& length = lengths_[to.index()];
  const size_t most = MostForks();
  for (size_t i = 0; i < whole && updates_count_ < most; ++i) {
    const uint32_t chunk = entry(from, i);
    shared_ += ++users_[chunk] == 2;
    List(to, chunk, 0, 0);
    length += shape_.chunk_positions;
  }
  if (length < whole * shape_.chunk_positions || rest == 0 || updates_count_ >= most) return length;
  if (Append(to, entry(from, whole), rest)) length += rest;
  return length;
}

void KvChunks::Keep(SlotId kept, SlotId slot) {
  LARDER_CHECK(kept.index() >= shape_.capacity.slots && slot.index() < shape_.capacity.slots);
  Reset(kept);
  socket_[kept.index()] = socket_[slot.index()];
  for (size_t i = 0; i < listed_[slot.index()]; ++i) entry(kept, i) = entry(slot, i);
  std::swap(listed_[kept.index()], listed_[slot.index()]);
  std::swap(lengths_[kept.index()], lengths_[slot.index()]);
}

bool KvChunks::Restore(SlotId slot, SlotId kept) {
  LARDER_CHECK(slot.index() < shape_.capacity.slots && kept.index() >= shape_.capacity.slots);
  size_t& chunks = listed_[kept.index()];
  if (socket_of(slot) != socket_of(kept) || updates_count_ + chunks > MostForks()) return false;
  Reset(slot);
  for (size_t i = 0; i < chunks; ++i) List(slot, entry(kept, i), 0, 0);
  chunks = 0;
  std::swap(lengths_[kept.index()], lengths_[slot.index()]);
  return true;
}

size_t KvChunks::Grow(SlotId slot, size_t chunks) {
  const size_t& listed = listed_[slot.index()];
  LARDER_CHECK(slot.index() < shape_.capacity.slots && chunks <= slot_chunks_ &&
               lengths_[slot.index()] % shape_.chunk_positions == 0);
  while (listed < chunks && updates_count_ < MostForks() && Append(slot, 0, 0)) {
  }
  return listed;
}

void KvChunks::LetGo(uint32_t chunk) {
  AttentionId socket(0);
  while (chunk >= shape_.chunk_ends[socket.index()]) ++socket;
  Release(pools_[socket.index()], chunk);
}

void KvChunks::Shorten(SlotId slot, size_t positions) {
  LARDER_CHECK(positions <= lengths_[slot.index()]);
  Cut(slot, CeilDiv(positions, shape_.chunk_positions));
  lengths_[slot.index()] = positions;
}

size_t KvChunks::own(SlotId slot) const {
  size_t chunks = 0;
  for (size_t i = 0; i < listed_[slot.index()]; ++i) chunks += users_[entry(slot, i)] == 1;
  return chunks;
}

bool KvChunks::Append(SlotId slot, uint32_t copied_from, size_t copied_positions) {
  Pool& pool = pool_of(slot);
  if (pool.free == 0 || updates_count_ == updates_.size()) return false;
  const uint32_t chunk = pool.free_list[--pool.free];
  users_[chunk] = 1;
  List(slot, chunk, copied_from, copied_positions);
  return true;
}

void KvChunks::List(SlotId slot, uint32_t chunk, uint32_t copied_from, size_t copied_positions) {
  size_t& listed = listed_[slot.index()];
  updates_[updates_count_++] = {.slot = slot,
                                .index = static_cast<uint32_t>(listed),
                                .chunk = chunk,
                                .copied_from = copied_from,
                                .copied_positions = static_cast<uint32_t>(copied_positions)};
  entry(slot, listed++) = chunk;
}

void KvChunks::Cut(SlotId slot, size_t chunks) {
  size_t& listed = listed_[slot.index()];
  while (listed > chunks) Release(pool_of(slot), entry(slot, --listed));
}

void KvChunks::Release(Pool& pool, uint32_t chunk) {
  const uint32_t users = --users_[chunk];
  shared_ -= users == 1;
  if (users == 0) pool.free_list[pool.free++] = chunk;
}

}  // namespace larder::pipeline::kv
