// Pages of the KV cache: the keys of 16 positions of one KV head, and the values of 32. Plain data;
// writing a position is on the data path.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/memory.h"
#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats {

// Keys are a panel: a row per position; its inputs are the head's elements, padded to blocks.
inline constexpr size_t kPagePositions = kPanelRows;
inline constexpr PanelFormat kKeyPanel = kQ8Panel;

// Values, for heads of `blocks` blocks: an f16 scale for each of 32 positions; then signed int8,
// for each 16 elements and each 4 positions a vector of 64 bytes, the 4 positions of an element
// side by side: sums are over positions, whose weights (ChunkWeights) have one scale for a page.
inline constexpr size_t kValuePagePositions = 32;
struct ValuePage {
  static constexpr size_t kScaleBytes = kValuePagePositions * sizeof(model::Q8Block::d);
  static constexpr size_t kTogether = 4;  // positions
  static constexpr size_t kVectorBytes = kPanelRows * kTogether;
  static constexpr size_t kUnitVectors = kValuePagePositions / kTogether;  // vectors for each 16
                                                                           // elements
  size_t blocks;
  constexpr size_t elements() const { return blocks * kBlock; }
  static constexpr size_t scale_offset(size_t position) {
    return position * sizeof(model::Q8Block::d);
  }
  static constexpr size_t vector_offset(size_t unit, size_t vector) {
    return kScaleBytes + (unit * kUnitVectors + vector) * kVectorBytes;
  }
  static constexpr size_t value_offset(size_t element, size_t position) {
    return vector_offset(element / kPanelRows, position / kTogether) +
           element % kPanelRows * kTogether + position % kTogether;
  }
  constexpr size_t bytes() const { return kScaleBytes + elements() * kValuePagePositions; }
};

// Writes one position's key into a page: `blocks` blocks.
inline void PackKey(const model::Q8Block* key, size_t blocks, size_t position_in_page,
                    uint8_t* page) {
  q8_panel::PackRow(key, blocks, position_in_page, page);
}
// Writes one position's value into a page: layout.elements() numbers and their scale, an f16.
void PackValue(const ValuePage& layout, const int8_t* value, uint16_t scale,
               size_t position_in_page, uint8_t* page);

// Attention splits the context at multiples of this many positions, whatever the batch, the threads
// or the phase: each chunk is a softmax of its own, and chunks merge in ascending order.
inline constexpr size_t kChunkPositions = 256;
// Floats between the rows of a chunk's scores: one cache line more than the chunk, so that rows do
// not share an L1 set.
inline constexpr size_t kChunkStride = kChunkPositions + kCacheLineBytes / sizeof(float);

// The weights of a chunk's values in one query: softmax numerators times the values' scales, in 8
// unsigned bits, since none is negative. weight of position i = q[i] * d[i / 32]. (7 bits would be
// enough for AVX2's products of bytes not to saturate, but cost 1.2 times the divergence of random
// models.)
struct alignas(kCacheLineBytes) ChunkWeights {
  static constexpr size_t kPages = kChunkPositions / kValuePagePositions;
  uint8_t q[kChunkPositions];
  float d[kPages];
};

}  // namespace larder::kernels::formats
