// Number formats of tensors, as GGUF files store them, and their scalar conversions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/memory.h"

namespace larder::model::inline gguf {

// Values are GGUF's type numbers.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39
};
// For messages: what files may have.
inline constexpr std::string_view kReadableTypes =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4";

// "Q4_K" for any GGUF type number, also for those that Larder does not read; "unknown" otherwise.
std::string_view GgufTypeName(uint32_t gguf_type);

inline constexpr size_t kBlock = 32;  // weights (or activations) that share one scale

// GGUF's Q8_0: value[i] = F16ToF32(d) * q[i].
struct Q8Block {
  uint16_t d;
  int8_t q[kBlock];
};
static_assert(sizeof(Q8Block) == 34 && alignof(Q8Block) == 2);

// GGUF's Q4_0 and IQ4_NL: value[i] = F16ToF32(d) * v, with v = code - 8 or kIq4Values[code]. The
// codes of weights i and i + 16 are the low and the high half of q[i].
struct Q4Block {
  uint16_t d;
  uint8_t q[kBlock / 2];
};
static_assert(sizeof(Q4Block) == 18);

// The values of the codes of IQ4_NL and IQ4_XS.
inline constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// GGUF's MXFP4: value[i] = Mxfp4Scale(e) * kMxfp4Values[code], with the codes as in Q4Block.
struct Mxfp4Block {
  uint8_t e;
  uint8_t q[kBlock / 2];
};
static_assert(sizeof(Mxfp4Block) == 17);
// The values of MXFP4's codes: floats of 4 bits (E2M1), doubled.
inline constexpr std::array<int8_t, 16> kMxfp4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};
// 2^(e - 128), half of what the exponent says, since the values are doubled; the two smallest are
// subnormal. With an exponent above kMaxMxfp4Exponent the largest weight, 12 times the scale, is
// infinite.
inline constexpr uint8_t kMaxMxfp4Exponent = 252;
inline float Mxfp4Scale(uint8_t e) {
  return __builtin_bit_cast(float, e < 2 ? 0x00200000u << e : (e - 1u) << 23);
}

// GGUF's Q4_1: value[i] = F16ToF32(d) * code + F16ToF32(m), with the codes as in Q4Block.
struct Q4_1Block {
  uint16_t d, m;
  uint8_t q[kBlock / 2];
};
static_assert(sizeof(Q4_1Block) == 20);

// GGUF's Q5_0 and Q5_1: as Q4_0 with v = code - 16, and as Q4_1; the fifth bit of code i is bit i
// of `fifth`.
struct Q5Block {
  uint16_t d;
  uint8_t fifth[4];
  uint8_t q[kBlock / 2];
};
static_assert(sizeof(Q5Block) == 22);
struct Q5_1Block {
  uint16_t d, m;
  uint8_t fifth[4];
  uint8_t q[kBlock / 2];
};
static_assert(sizeof(Q5_1Block) == 24);

// GGUF's Q4_K: 8 sub-blocks of 32 weights; value = d * scale * code - dmin * min, with the scale
// and the min of the weight's sub-block. q[32 * t + i] holds weight i of sub-block 2t in its low
// half and of sub-block 2t + 1 in its high half.
inline constexpr size_t kSuperBlocks = 8;
struct Q4KBlock {
  uint16_t d, dmin;
  uint8_t scales[12];  // SixBits
  uint8_t q[kSuperBlocks * kBlock / 2];
};
static_assert(sizeof(Q4KBlock) == 144);

// GGUF's Q5_K: the same with codes of five bits; bit s of fifth[i] is the highest of weight i of
// sub-block s.
struct Q5KBlock {
  uint16_t d, dmin;
  uint8_t scales[12];  // SixBits
  uint8_t fifth[kBlock];
  uint8_t q[kSuperBlocks * kBlock / 2];
};
static_assert(sizeof(Q5KBlock) == 176);

// GGUF's IQ4_XS: 8 sub-blocks of 32 weights; value = d * (scale - 32) * kIq4Values[code], with the
// codes of a sub-block as in Q4Block. Scale s has its low four bits in half s of scales_low, its
// high two in the bits 2s and 2s + 1 of scales_high.
struct Iq4XsBlock {
  uint16_t d, scales_high;
  uint8_t scales_low[kSuperBlocks / 2];
  uint8_t q[kSuperBlocks][kBlock / 2];
};
static_assert(sizeof(Iq4XsBlock) == 136);

// GGUF's Q6_K: 16 sub-blocks of 16 weights; value = d * scale * (code - 32). Sub-block 8h + 2t + i
// has the low halves of its codes in low[64h + 32 (t % 2) + 16i ..], in the low halves of the bytes
// if t < 2, else in the high ones, and their two high bits in high[32h + 16i ..], from bit 2t on.
struct Q6KBlock {
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(Q6KBlock) == 210);

// Scale and minimum, 6 bits each, of sub-block `sub` of 8, packed into 12 bytes.
struct ScaleAndMin {
  uint8_t scale, min;
};
inline ScaleAndMin SixBits(const uint8_t packed[12], size_t sub) {
  if (sub < 4)
    return {static_cast<uint8_t>(packed[sub] & 63), static_cast<uint8_t>(packed[sub + 4] & 63)};
  return {static_cast<uint8_t>((packed[sub + 4] & 15) | (packed[sub - 4] >> 6) << 4),
          static_cast<uint8_t>(packed[sub + 4] >> 4 | (packed[sub] >> 6) << 4)};
}

// IEEE binary16 and bfloat16. To 16 bits rounds to nearest even; F16 overflows to infinity.
float F16ToF32(uint16_t h);
uint16_t F32ToF16(float f);
inline float Bf16ToF32(uint16_t h) {
  const uint32_t u = static_cast<uint32_t>(h) << 16;
  return __builtin_bit_cast(float, u);
}
uint16_t F32ToBf16(float f);
// Converts a whole row, vectorised.
void F16ToF32(std::span<const uint16_t> h, float* f);
void F32ToF16(std::span<const float> f, uint16_t* h);

// x[n] -> ceil(n/32) blocks, the last one padded with zeros. d = amax/127 rounded to f16,
// q = round-to-nearest-even(x / d'), where d' is amax/127 before rounding (as llama.cpp does; the
// division is a multiplication by the float32 1/d'). A d that rounds to zero makes a block of
// zeros; an amax beyond 127 * 65504 makes d infinite. x must be free of NaN and infinities: see
// AllFinite.
void QuantizeQ8_0(std::span<const float> x, Q8Block* blocks);
void DequantizeQ8_0(const Q8Block* blocks, std::span<float> x);

bool AllFinite(std::span<const float> x);

// How a GGUF type is stored: `elements` weights in `bytes` bytes. {0, 0} for type numbers whose
// layout Larder does not know.
struct GgufTypeLayout {
  size_t elements = 0;
  size_t bytes = 0;
};
GgufTypeLayout LayoutOfGgufType(uint32_t gguf_type);
// The offsets of the 16-bit floats in a block of the type. Empty for MXFP4 and for types without
// blocks.
std::span<const size_t> F16Offsets(TensorType type);
// Whether ReadRows, ReadRowsF32 and ReadRowsQ8_0 can read it: it is one of TensorType.
bool IsReadableType(uint32_t gguf_type);

// Bytes of one row of `cols` elements. Rows hold whole blocks: cols is a multiple of the type's
// elements.
size_t RowBytes(TensorType type, size_t cols);

}  // namespace larder::model::gguf
