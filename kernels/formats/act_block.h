// ActBlock: quantised activations, which every matrix product reads besides its panels
// (panel_format.h). Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/memory.h"
#include "model/gguf/formats.h"

namespace larder::kernels::inline formats {

using model::kBlock;

// 32 activations. value[i] = d * q[i], q in [-127, 127].
// d has at most 22 significant bits, so that kMagic * d is exact in float32. A kernel can then
// compute round(float(isum) * d) from an integer accumulator that started at `start` with one fused
// multiply-add and no conversion: the accumulator's bits, read as a float, are exactly kMagic +
// isum (|isum| <= 32*128*127 < 2^22), and fma(kMagic + isum, d, -kMagic * d) rounds once, as the
// product does.
struct alignas(8) ActBlock {
  int8_t q[kBlock];
  float d;         // scale; 0 for a block whose largest magnitude is below 2^-100
  float minus_md;  // -kMagic * d, exact
  int32_t start;   // bits of kMagic minus 128 * sum(q): cancels the +128 of unsigned weights
  float d_sum;     // d * sum(q), rounded once: the factor of a block's minimum
  int32_t half_starts[2];  // like `start`, one for each half of 16 activations
};
static_assert(sizeof(ActBlock) == 56);

inline constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
inline constexpr int32_t kMagicBits = 0x4B400000;

// Bytes between rows of quantised activations: an odd number of cache lines, so that the same block
// of many rows does not map to one L1 set.
constexpr size_t ActRowBytes(size_t blocks) {
  const size_t lines = CeilDiv(blocks * sizeof(ActBlock), kCacheLineBytes);
  return (lines | 1) * kCacheLineBytes;
}

}  // namespace larder::kernels::formats
