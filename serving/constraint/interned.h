// Interned: a hash table of indices into an array that its owner keeps; equal values have one
// index. It is cleared in constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace larder::serving::inline constraint {

class Interned {
 public:
  // The index of a value with this hash for which equal(index) holds. If there is none, `fresh` is
  // added and returned.
  template <typename Equal>
  uint32_t Find(uint64_t hash, uint32_t fresh, const Equal& equal) {
    if (2 * (count_ + 1) > cells_.size()) Grow();
    const size_t mask = cells_.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      Cell& cell = cells_[at];
      if (cell.round != round_) {
        cell = {hash, fresh, round_};
        ++count_;
        return fresh;
      }
      if (cell.hash == hash && equal(cell.index)) return cell.index;
    }
  }
  void Clear() {
    count_ = 0;
    if (++round_ == 0) {  // cells of 2^32 rounds ago must not come back
      cells_.assign(cells_.size(), {});
      round_ = 1;
    }
  }
  // Makes room for that many values. The table must be empty.
  void Reserve(size_t count) {
    size_t cells = 64;
    while (cells < 2 * (count + 1)) cells *= 2;
    if (cells > cells_.size()) cells_.assign(cells, {});
  }
  size_t bytes() const { return cells_.size() * sizeof(Cell); }
  void Free() { *this = Interned(); }

 private:
  struct Cell {
    uint64_t hash = 0;
    uint32_t index = 0, round = 0;
  };
  void Grow() {
    std::vector<Cell> old(cells_.empty() ? 64 : 2 * cells_.size());
    old.swap(cells_);
    const size_t mask = cells_.size() - 1;
    for (const Cell& cell : old) {
      if (cell.round != round_) continue;
      size_t at = cell.hash & mask;
      while (cells_[at].round == round_) at = (at + 1) & mask;
      cells_[at] = cell;
    }
  }

  std::vector<Cell> cells_;
  size_t count_ = 0;
  uint32_t round_ = 1;
};

inline uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

}  // namespace larder::serving::constraint
