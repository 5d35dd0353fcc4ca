#include "pipeline/kv/kv_chunks.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory.h"

namespace larder::pipeline::inline kv {
namespace {

std::vector<KvStates::Pool> PoolsOfStates(const KvChunksShape& shape) {
  std::vector<KvStates::Pool> pools;
  const size_t classes = shape.classes.size();
  for (size_t i = classes - 1; shape.states() && i < shape.chunk_ends.size(); i += classes)
    pools.push_back(
        {{i == 0 ? 0 : shape.chunk_ends[i - 1], shape.chunk_ends[i]}, shape.SlotsOf(i / classes)});
  return pools;
}

}  // namespace

uint64_t KvChunksShape::NeededBytes(size_t positions) const {
  const size_t all = CeilDiv(std::min(positions, capacity.context), chunk_positions);
  uint64_t bytes = 0;
  for (size_t i = 0; i < classes.size(); ++i) {
    const size_t chunks = classes[i].chunks == 0 ? all : std::min(all, classes[i].chunks);
    bytes += chunks * (class_bytes.empty() ? 1 : class_bytes[i]);
  }
  return bytes;
}

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
  LARDER_CHECK(shape_.class_bytes.empty() || shape_.class_bytes.size() == shape_.classes.size());
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
  for (size_t i = 0; i < pools_.size(); ++i) {
    const size_t chunks = shape_.chunk_ends[i] - (i == 0 ? 0 : shape_.chunk_ends[i - 1]);
    const model::KvClass& of = shape_.classes[i % shape_.classes.size()];
    const size_t needed = of.states        ? shape_.SlotsOf(i / shape_.classes.size())
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

size_t KvChunks::UsableChunks(SlotId slot, size_t positions) const {
  for (;;) {
    const size_t whole = positions - positions % shape_.chunk_positions;
    positions = Usable(slot, whole);
    if (positions == whole) return whole / shape_.chunk_positions;
  }
}

size_t KvChunks::Grow(SlotId slot, size_t chunks) {
  const size_t positions = chunks * shape_.chunk_positions, had = lengths_[slot.index()];
  LARDER_CHECK(slot.index() < shape_.capacity.slots && chunks <= slot_chunks_ &&
               had % shape_.chunk_positions == 0);
  for (size_t c = 0; c < classes_.size(); ++c) {
    KeepFor(slot, positions, positions);
    if (ListUpTo(c, slot, FirstSeen(classes_[c], positions), chunks)) continue;
    if (shape_.plain()) return classes_[c].end[slot.index()];
    Shorten(slot, Usable(slot, had));
    return lengths_[slot.index()] / shape_.chunk_positions;
  }
  if (!states_.any() || states_.Add(slot, socket_of(slot), positions) != KvStates::kNone)
    return chunks;
  Shorten(slot, Usable(slot, had));
  return lengths_[slot.index()] / shape_.chunk_positions;
}

bool KvChunks::ListUpTo(size_t of_class, SlotId slot, size_t first, size_t end) {
  size_t &begins = classes_[of_class].first[slot.index()],
         &listed = classes_[of_class].end[slot.index()];
  if (listed <= first) {
    Pool& pool = pool_of(socket_of(slot), of_class);
    while (begins < listed) Release(pool, entry(of_class, slot, begins++));
    begins = listed = first;
  }
  while (listed < end && updates_count_ < MostForks() && Append(of_class, slot, 0, 0)) {
  }
  return listed == end;
}

std::vector<KvPiece> KvChunks::PiecesAt(SlotId slot, size_t positions) const {
  std::vector<KvPiece> pieces;
  for (uint32_t c = 0; c < classes_.size(); ++c) {
    for (size_t i = classes_[c].first[slot.index()]; i < CeilDiv(positions, shape_.chunk_positions);
         ++i)
      pieces.push_back({.of_class = c, .index = i, .chunk = entry(c, slot, i)});
  }
  if (!states_.any()) return pieces;
  std::vector<KvPiece> states;
  states_.ForEach(slot, [&](size_t position, uint32_t chunk) {
    if (position > 0 && position <= positions)
      states.push_back(
          {.of_class = static_cast<uint32_t>(classes_.size()), .index = position, .chunk = chunk});
  });
  const size_t earlier = states.size() - std::min<size_t>(states.size(), 2);
  pieces.insert(pieces.end(), states.begin() + static_cast<std::ptrdiff_t>(earlier), states.end());
  return pieces;
}

bool KvChunks::GrowAt(SlotId slot, size_t positions, std::span<const KvPiece> pieces) {
  LARDER_CHECK(slot.index() < shape_.capacity.slots && length(slot) == 0);
  KeepFor(slot, positions, positions);
  uses_[slot.index()] = ++use_;
  for (size_t c = 0; c < classes_.size(); ++c) {
    size_t first = FirstSeen(classes_[c], positions);
    for (const KvPiece& piece : pieces) {
      if (piece.of_class == c) first = std::min(first, piece.index);
    }
    if (!ListUpTo(c, slot, first, CeilDiv(positions, shape_.chunk_positions))) return false;
  }
  if (!states_.any()) return true;
  for (const KvPiece& piece : pieces) {
    if (piece.of_class == classes_.size() && piece.index < positions)
      states_.Add(slot, socket_of(slot), piece.index);
  }
  if (states_.Add(slot, socket_of(slot), positions) != KvStates::kNone) return true;
  states_.Cut(slot, 0);  // the earlier one has taken the last that could be given up
  return states_.Add(slot, socket_of(slot), positions) != KvStates::kNone;
}

std::vector<KvPiece> KvChunks::Pieces(SlotId slot, size_t chunks) const {
  std::vector<KvPiece> pieces;
  for (size_t c = 0; c < classes_.size(); ++c) {
    const size_t needed = FirstSeen(classes_[c], chunks * shape_.chunk_positions);
    for (size_t i = std::max(needed, classes_[c].first[slot.index()]); i < chunks; ++i)
      pieces.push_back(
          {.of_class = static_cast<uint32_t>(c), .index = i, .chunk = entry(c, slot, i)});
  }
  const auto of_states = static_cast<uint32_t>(classes_.size());
  const auto add = [&](size_t position, uint32_t chunk) {
    if (position == 0 || position % shape_.chunk_positions > 0) return;
    const size_t index = position / shape_.chunk_positions - 1;
    const auto same = [&](const KvPiece& of) {
      return of.of_class == of_states && of.index == index;
    };
    if (index < chunks && std::ranges::none_of(pieces, same))
      pieces.push_back({.of_class = of_states, .index = index, .chunk = chunk});
  };
  if (states_.any()) states_.ForEach(slot, add);
  std::ranges::stable_sort(pieces, {}, &KvPiece::index);
  return pieces;
}

bool KvChunks::Hold(const KvPiece& piece) {
  if (piece.of_class == classes_.size()) return states_.Hold(piece.chunk);
  shared_ += ++users_[piece.chunk] == 2;
  return true;
}

void KvChunks::LetGo(const KvPiece& piece) {
  if (piece.of_class == classes_.size()) return states_.LetGo(piece.chunk);
  Release(pool_with(piece.chunk), piece.chunk);
}

}  // namespace larder::pipeline::kv
