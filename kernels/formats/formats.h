// The layouts that kernels share: quantised activations, packed weight panels, KV pages. Plain data, no code
// that runs per token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/memory.h"
#include "model/gguf/formats.h"

namespace larder::kernels {

using model::kBlock;

// 32 activations. value[i] = d * q[i], q in [-127, 127].
// d carries at most 22 significant bits, so that kMagic * d is exact in float32: a kernel may then get
// round(float(isum) * d) from an integer accumulator that started at `start`, with one fused multiply-add and
// no conversion: the accumulator's bits, read as a float, are kMagic + isum exactly (|isum| <= 32*128*127 <
// 2^22), and fma(kMagic + isum, d, -kMagic * d) rounds once, as the product does.
struct alignas(16) ActBlock {
  int8_t q[kBlock];
  float d;         // scale; 0 for a block whose largest magnitude is below 2^-100
  float minus_md;  // -kMagic * d, exact
  int32_t start;   // bits of kMagic minus 128 * sum(q): cancels the +128 of unsigned weights
  int32_t sum;     // sum(q)
};
static_assert(sizeof(ActBlock) == 48);

inline constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
inline constexpr int32_t kMagicBits = 0x4B400000;

// Packed panel: 16 output rows x `blocks` blocks of 32 inputs. Blocks lie in pairs; a pair is
//   64 bytes: f16 scales, [2 blocks][16 rows];
//   1024 bytes: for each block 8 vectors of 64 bytes; vector j holds inputs 4j..4j+3 of rows 0..15:
//     byte 4*row + i = weight(row, 4j + i) + 128, unsigned.
// An odd last block is a pair without its second half: 64 + 512 bytes (the second 16 scales are zero).
// Everything is 64-byte aligned. Rows beyond the tensor's last and inputs beyond its width are weight 0,
// scale 0.
inline constexpr size_t kPanelRows = 16;
inline constexpr size_t kPairBytes = 64 + 1024;
constexpr size_t PanelBytes(size_t blocks) { return blocks / 2 * kPairBytes + blocks % 2 * (64 + 512); }

// A KV page: 16 positions of one KV head. Keys are a panel (row = position, inputs = the head's elements
// padded to blocks). Values are [blocks][16 positions] f16 scales, padded to 64 bytes, then [16 positions][32
// * blocks] signed int8.
inline constexpr size_t kPagePositions = 16;
constexpr size_t KeyPageBytes(size_t blocks) { return PanelBytes(blocks); }
constexpr size_t ValueScaleBytes(size_t blocks) { return RoundUp(blocks * kPagePositions * 2, 64); }
constexpr size_t ValuePageBytes(size_t blocks) {
  return ValueScaleBytes(blocks) + kPagePositions * blocks * kBlock;
}

// Attention splits the context at multiples of this many positions, whatever the batch, the threads or the
// phase: each chunk is a softmax of its own, and chunks merge in ascending order.
inline constexpr size_t kChunkPositions = 256;

// Bytes between rows of quantised activations: an odd number of cache lines, so that the same block of many
// rows does not fall into one L1 set.
constexpr size_t ActRowBytes(size_t blocks) {
  const size_t lines = CeilDiv(blocks * sizeof(ActBlock), kCacheLineBytes);
  return (lines | 1) * kCacheLineBytes;
}

}  // namespace larder::kernels
