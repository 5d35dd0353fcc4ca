// Merger: the merge loop of SPM and BPE. It joins a word's symbols pair by pair, always the pair
// that is first in order (the leftmost of equals), until no known pair is left. A heap of
// candidates makes it n log n; candidates that an earlier merge has made invalid are dropped when
// they are popped. It is scratch memory: one per call of Encode, reused from word to word.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline tokenizer {

// Two ids as the key of a table of merges.
constexpr uint64_t PairKey(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

class Merger {
 public:
  struct Symbol {
    std::string_view text;  // empty: it was merged into its left neighbour
    TokenId id;
    int32_t prev;
    int32_t next;
  };
  struct Merge {
    double order;  // lowest first: a BPE rank or a negated SPM score
    TokenId id;    // the id of the joined symbol
  };

  void Clear() { symbols_.clear(); }
  bool empty() const { return symbols_.empty(); }

  // Symbols are appended in text order, each adjacent to the one before it.
  void Append(std::string_view text, TokenId id) {
    const auto i = static_cast<int32_t>(symbols_.size());
    if (i > 0) symbols_.back().next = i;
    symbols_.push_back({text, id, i - 1, -1});
  }

  // Calls find(left, right) -> std::optional<Merge> for pairs, then emit(symbol) for each symbol
  // that remains.
  template <typename Find, typename Emit>
  void Run(Find&& find, Emit&& emit) {
    heap_.clear();
    for (int32_t i = 1; i < static_cast<int32_t>(symbols_.size()); ++i) Consider(i - 1, i, find);
    std::make_heap(heap_.begin(), heap_.end(), Later);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), Later);
      const Candidate top = heap_.back();
      heap_.pop_back();
      Symbol& left = symbols_[top.left];
      Symbol& right = symbols_[top.right];
      // Sizes only grow, and a symbol that was merged away is empty, so an equal sum means the same
      // two symbols.
      if (left.text.empty() || right.text.empty() ||
          left.text.size() + right.text.size() != top.bytes)
        continue;
      left = {{left.text.data(), top.bytes}, top.id, left.prev, right.next};
      right.text = {};
      if (left.next >= 0) symbols_[left.next].prev = top.left;
      if (left.prev >= 0 && Consider(left.prev, top.left, find)) Push();
      if (left.next >= 0 && Consider(top.left, left.next, find)) Push();
    }
    if (symbols_.empty()) return;
    for (int32_t i = 0; i >= 0; i = symbols_[i].next) emit(symbols_[i]);
  }

 private:
  struct Candidate {
    double order;
    int32_t left;
    int32_t right;
    uint32_t bytes;
    TokenId id;
  };

  static bool Later(const Candidate& a, const Candidate& b) {
    return a.order > b.order || (a.order == b.order && a.left > b.left);
  }

  template <typename Find>
  bool Consider(int32_t left, int32_t right, Find&& find) {
    const std::optional<Merge> merge = find(symbols_[left], symbols_[right]);
    if (!merge) return false;
    const size_t bytes = symbols_[left].text.size() + symbols_[right].text.size();
    heap_.push_back({merge->order, left, right, static_cast<uint32_t>(bytes), merge->id});
    return true;
  }

  void Push() { std::push_heap(heap_.begin(), heap_.end(), Later); }

  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace larder::model::tokenizer
