// A KV page: the keys and, separately, the values of 16 positions of one KV head. Plain data;
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

// Values, for heads of `blocks` blocks: f16 scales, [blocks][16 positions], padded to 64 bytes;
// then signed int8, [16 positions][32 * blocks].
struct ValuePage {
  static constexpr size_t kBlockScaleBytes = kPagePositions * sizeof(model::Q8Block::d);
  size_t blocks;
  constexpr size_t row_bytes() const { return blocks * kBlock; }  // of one position's values
  constexpr size_t scale_offset(size_t block, size_t position) const {
    return block * kBlockScaleBytes + position * sizeof(model::Q8Block::d);
  }
  constexpr size_t value_offset(size_t position) const {
    return RoundUp(blocks * kBlockScaleBytes, kCacheLineBytes) + position * row_bytes();
  }
  constexpr size_t bytes() const { return value_offset(kPagePositions); }
};

// Writes one position's key or value into a page. Keys: `blocks` blocks.
inline void PackKey(const model::Q8Block* key, size_t blocks, size_t position_in_page,
                    uint8_t* page) {
  q8_panel::PackRow(key, blocks, position_in_page, page);
}
void PackValue(const ValuePage&, const model::Q8Block* value, size_t position_in_page,
               uint8_t* page);

// Attention splits the context at multiples of this many positions, whatever the batch, the threads
// or the phase: each chunk is a softmax of its own, and chunks merge in ascending order.
inline constexpr size_t kChunkPositions = 256;
// Floats between the rows of a chunk's scores: one cache line more than the chunk, so that rows do
// not share an L1 set.
inline constexpr size_t kChunkStride = kChunkPositions + kCacheLineBytes / sizeof(float);

}  // namespace larder::kernels::formats
