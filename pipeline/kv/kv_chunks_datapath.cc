#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "pipeline/kv/kv_chunks.h"

namespace larder::pipeline::inline kv {

size_t KvChunks::Usable(SlotId slot, size_t positions) const {
  size_t usable = std::min(length(slot), positions);
  const auto gone = [&](const Class& of) { return FirstSeen(of, usable) < of.first[slot.index()]; };
  if (states_.any()) usable = states_.Usable(slot, usable);
  while (usable > 0 && std::ranges::any_of(classes_, gone))
    usable = states_.any() ? states_.Usable(slot, usable - 1) : 0;
  return usable;
}

size_t KvChunks::Reserve(SlotId slot, size_t begin, size_t end) {
  size_t& length = lengths_[slot.index()];
  LARDER_CHECK(slot.index() < shape_.capacity.slots && begin <= length && begin <= end &&
               end <= shape_.capacity.context && Usable(slot, begin) == begin);
  const size_t in_chunk = begin % shape_.chunk_positions;  // positions of the last chunk that stay
  if (begin < length) {
    Cut(slot, CeilDiv(begin, shape_.chunk_positions));
    length = begin;
  }
  if (states_.any()) {
    if (updates_count_ == updates_.size()) return begin;
    updates_count_ += states_.Begin(slot, socket_of(slot), begin, &updates_[updates_count_]);
  }
  KeepFor(slot, begin, end);
  uses_[slot.index()] = ++use_;
  for (size_t c = 0; in_chunk > 0 && end > begin && c < classes_.size(); ++c) {
    // The sequence goes on inside a chunk: in a copy, if others list it.
    const size_t index = begin / shape_.chunk_positions;
    const uint32_t chunk = entry(c, slot, index);
    if (users_[chunk] < 2) continue;
    Cut(slot, index + 1);
    size_t& listed = classes_[c].end[slot.index()];
    listed = index;
    if (!Append(c, slot, chunk, in_chunk)) {
      listed = index + 1;
      return begin;
    }
    Release(pool_with(chunk), chunk);
  }
  size_t room = end;
  for (size_t c = 0; c < classes_.size(); ++c) {
    const size_t& listed = classes_[c].end[slot.index()];
    while (listed * shape_.chunk_positions < end && Append(c, slot, 0, 0)) {
    }
    room = std::min(room, listed * shape_.chunk_positions);
  }
  return room;
}

size_t KvChunks::Fork(SlotId to, SlotId from, size_t positions) {
  LARDER_CHECK(to.index() < shape_.capacity.slots && to != from && positions <= length(from));
  Reset(to);
  const AttentionId socket = socket_of(to);
  if (socket != socket_of(from)) return 0;
  positions = Usable(from, positions);
  const size_t updates = MostForks() - std::min(MostForks(), updates_count_);
  const auto lacks = [&](const Class& of) {
    return pool_of(socket, static_cast<size_t>(&of - classes_.data())).free == 0 &&
           !AnyLoose(socket, of);
  };
  if (positions % shape_.chunk_positions > 0 &&
      (ChunksAt(positions) > updates || std::ranges::any_of(classes_, lacks)))
    positions = Usable(from, positions - positions % shape_.chunk_positions);
  while (ChunksAt(positions) > updates)
    positions = Usable(from, positions - std::min(positions, shape_.chunk_positions));
  if (positions == 0) return 0;
  const size_t whole = positions / shape_.chunk_positions,
               rest = positions % shape_.chunk_positions;
  for (size_t c = 0; c < classes_.size(); ++c) {
    Class& of = classes_[c];
    of.first[to.index()] = of.end[to.index()] = FirstSeen(of, positions);
    for (size_t i = of.first[to.index()]; i < whole; ++i) {
      const uint32_t chunk = entry(c, from, i);
      shared_ += ++users_[chunk] == 2;
      List(c, to, chunk, 0, 0);
    }
  }
  KeepFor(to, positions, positions);
  for (size_t c = 0; rest > 0 && c < classes_.size(); ++c) {
    const uint32_t chunk = entry(c, from, whole);
    shared_ += ++users_[chunk] == 2;  // it may be a loose one
    const bool appended = Append(c, to, chunk, rest);
    Release(pool_with(chunk), chunk);
    if (appended) continue;
    Reset(to);
    return 0;
  }
  lengths_[to.index()] = positions;
  if (states_.any()) states_.Share(to, from, positions);
  return positions;
}

void KvChunks::Keep(SlotId kept, SlotId slot) {
  LARDER_CHECK(kept.index() >= shape_.capacity.slots && slot.index() < shape_.capacity.slots);
  Reset(kept);
  socket_[kept.index()] = socket_[slot.index()];
  for (size_t c = 0; c < classes_.size(); ++c) {
    Class& of = classes_[c];
    for (size_t i = of.first[slot.index()]; i < of.end[slot.index()]; ++i)
      entry(c, kept, i) = entry(c, slot, i);
    of.first[kept.index()] = std::exchange(of.first[slot.index()], 0);
    of.end[kept.index()] = std::exchange(of.end[slot.index()], 0);
  }
  std::swap(lengths_[kept.index()], lengths_[slot.index()]);
  keeps_[kept.index()] = std::exchange(keeps_[slot.index()], 0);
  uses_[kept.index()] = uses_[slot.index()];
  if (states_.any()) states_.Move(kept, slot);
}

bool KvChunks::Restore(SlotId slot, SlotId kept) {
  LARDER_CHECK(slot.index() < shape_.capacity.slots && kept.index() >= shape_.capacity.slots);
  size_t chunks = 0;
  for (const Class& of : classes_) chunks += of.end[kept.index()] - of.first[kept.index()];
  if (socket_of(slot) != socket_of(kept) || updates_count_ + chunks > MostForks()) return false;
  Reset(slot);
  for (size_t c = 0; c < classes_.size(); ++c) {
    Class& of = classes_[c];
    const size_t first = std::exchange(of.first[kept.index()], 0),
                 end = std::exchange(of.end[kept.index()], 0);
    of.first[slot.index()] = of.end[slot.index()] = first;
    for (size_t i = first; i < end; ++i) List(c, slot, entry(c, kept, i), 0, 0);
  }
  std::swap(lengths_[kept.index()], lengths_[slot.index()]);
  keeps_[slot.index()] = std::exchange(keeps_[kept.index()], 0);
  uses_[slot.index()] = ++use_;
  if (states_.any()) states_.Move(slot, kept);
  return true;
}

void KvChunks::Shorten(SlotId slot, size_t positions) {
  LARDER_CHECK(Usable(slot, positions) == positions);
  Cut(slot, CeilDiv(positions, shape_.chunk_positions));
  lengths_[slot.index()] = positions;
  if (states_.any()) states_.Cut(slot, positions);
  KeepFor(slot, positions, positions);
}

size_t KvChunks::free(AttentionId socket) const {
  size_t chunks = pool_of(socket, 0).free;
  const Class& of = classes_[0];
  for (SlotId slot(0); of.window > 0 && slot.index() < lists(); ++slot) {
    if (socket_of(slot) != socket) continue;
    for (size_t i = of.first[slot.index()]; i < LooseEnd(of, slot); ++i)
      chunks += users_[entry(0, slot, i)] == 1;
  }
  return chunks;
}

size_t KvChunks::most_chunks() const {
  const size_t most = shape_.classes[0].chunks;
  return most == 0 ? slot_chunks_ : std::min(most, slot_chunks_);
}

size_t KvChunks::own(SlotId slot) const {
  size_t chunks = 0;
  for (size_t i = first(slot); i < classes_[0].end[slot.index()]; ++i)
    chunks += users_[entry(0, slot, i)] == 1;
  return chunks;
}

bool KvChunks::Short(AttentionId socket) const {
  for (size_t c = 0; c < classes_.size(); ++c) {
    if (ShortOf(socket, c)) return true;
  }
  return false;
}

bool KvChunks::AnyLoose(AttentionId socket, const Class& of) const {
  for (SlotId slot(0); of.window > 0 && slot.index() < lists(); ++slot) {
    if (socket_of(slot) == socket && of.first[slot.index()] < LooseEnd(of, slot)) return true;
  }
  return false;
}

bool KvChunks::FreeLoose(AttentionId socket, size_t of_class) {
  Class& of = classes_[of_class];
  Pool& pool = pool_of(socket, of_class);
  while (pool.free == 0) {
    std::optional<SlotId> oldest;
    for (SlotId slot(0); of.window > 0 && slot.index() < lists(); ++slot) {
      if (socket_of(slot) != socket || of.first[slot.index()] >= LooseEnd(of, slot)) continue;
      if (!oldest || uses_[slot.index()] < uses_[oldest->index()]) oldest = slot;
    }
    if (!oldest) return false;
    size_t& first = of.first[oldest->index()];
    Release(pool, entry(of_class, *oldest, first++));
  }
  return true;
}

bool KvChunks::Append(size_t of_class, SlotId slot, uint32_t copied_from, size_t copied_positions) {
  Pool& pool = pool_of(socket_of(slot), of_class);
  if (updates_count_ == updates_.size()) return false;
  if (pool.free == 0 && !FreeLoose(socket_of(slot), of_class)) return false;
  const uint32_t chunk = pool.free_list[--pool.free];
  users_[chunk] = 1;
  List(of_class, slot, chunk, copied_from, copied_positions);
  return true;
}

void KvChunks::List(size_t of_class, SlotId slot, uint32_t chunk, uint32_t copied_from,
                    size_t copied_positions) {
  size_t& listed = classes_[of_class].end[slot.index()];
  updates_[updates_count_++] = {.slot = slot,
                                .index = static_cast<uint32_t>(listed),
                                .chunk = chunk,
                                .copied_from = copied_from,
                                .copied_positions = static_cast<uint32_t>(copied_positions)};
  entry(of_class, slot, listed++) = chunk;
}

size_t KvChunks::ChunksAt(size_t positions) const {
  size_t chunks = 0;
  for (const Class& of : classes_)
    chunks += CeilDiv(positions, shape_.chunk_positions) - FirstSeen(of, positions);
  return chunks;
}

void KvChunks::Cut(SlotId slot, size_t chunks) {
  for (size_t c = 0; c < classes_.size(); ++c) {
    size_t &first = classes_[c].first[slot.index()], &end = classes_[c].end[slot.index()];
    while (end > std::max(chunks, first)) {
      const uint32_t chunk = entry(c, slot, --end);
      Release(pool_of(socket_of(slot), c), chunk);
    }
    if (chunks == 0) first = end = 0;
  }
}

KvChunks::Pool& KvChunks::pool_with(uint32_t chunk) {
  const auto end =
      std::upper_bound(shape_.chunk_ends.begin(), shape_.chunk_ends.end(), size_t{chunk});
  return pools_[static_cast<size_t>(end - shape_.chunk_ends.begin())];
}

void KvChunks::Release(Pool& pool, uint32_t chunk) {
  const uint32_t users = --users_[chunk];
  shared_ -= users == 1;
  if (users == 0) pool.free_list[pool.free++] = chunk;
}

}  // namespace larder::pipeline::kv
