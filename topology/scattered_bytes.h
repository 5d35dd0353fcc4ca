// ScatteredBytes: bytes that lie in several pieces of somebody's memory, in their order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace larder::topology {

class ScatteredBytes {
 public:
  ScatteredBytes() = default;
  explicit ScatteredBytes(std::span<uint8_t> piece) { Add(piece); }

  // Behind the others; what follows the last piece in memory becomes part of it.
  void Add(std::span<uint8_t> piece) {
    if (piece.empty()) return;
    size_ += piece.size();
    if (!pieces_.empty() && pieces_.back().data() + pieces_.back().size() == piece.data()) {
      pieces_.back() = {pieces_.back().data(), pieces_.back().size() + piece.size()};
    } else {
      pieces_.push_back(piece);
    }
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<const std::span<uint8_t>> pieces() const { return pieces_; }

  // Calls with_piece(piece) for all bytes in pieces of at most `most` bytes.
  template <typename WithPiece>
  void ForEach(size_t most, const WithPiece& with_piece) const {
    for (std::span<uint8_t> rest : pieces_) {
      for (; !rest.empty(); rest = rest.subspan(std::min(most, rest.size())))
        with_piece(rest.first(std::min(most, rest.size())));
    }
  }

  std::vector<uint8_t> Read() const {
    std::vector<uint8_t> bytes;
    bytes.reserve(size_);
    for (const std::span<uint8_t> piece : pieces_)
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    return bytes;
  }
  // bytes: as many as there are here.
  void Write(std::span<const uint8_t> bytes) const {
    LARDER_CHECK(bytes.size() == size_, "{} bytes for {}", bytes.size(), size_);
    for (const std::span<uint8_t> piece : pieces_) {
      std::ranges::copy(bytes.first(piece.size()), piece.begin());
      bytes = bytes.subspan(piece.size());
    }
  }

 private:
  std::vector<std::span<uint8_t>> pieces_;
  size_t size_ = 0;
};

}  // namespace larder::topology
