#include "model/gguf/quants.h"

#include <array>
#include <cstring>

#include "base/check.h"

namespace larder::model::inline gguf {
namespace {

template <typename T>
T Load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float Half(const uint8_t* at) { return F16ToF32(Load<uint16_t>(at)); }

inline int Low(uint8_t byte) { return byte & 15; }
inline int High(uint8_t byte) { return byte >> 4; }

// The integers of a block of 32 that has one scale, before it is applied.
using Integers = std::array<int8_t, kBlock>;

// Sixteen bytes of two weights each: j and j + 16.
template <typename Value>
Integers Nibbles(const uint8_t* bytes, Value value) {
  Integers q;
  for (size_t j = 0; j < kBlock / 2; ++j) {
    q[j] = static_cast<int8_t>(value(Low(bytes[j]), j));
    q[j + kBlock / 2] = static_cast<int8_t>(value(High(bytes[j]), j + kBlock / 2));
  }
  return q;
}

Integers Q4_0(const uint8_t* block) {  // f16 scale, 16 bytes
  return Nibbles(block + 2, [](int q, size_t) { return q - 8; });
}

Integers Iq4Nl(const uint8_t* block) {  // f16 scale, 16 bytes
  return Nibbles(block + 2, [](int q, size_t) { return kIq4Values[static_cast<size_t>(q)]; });
}

// The fifth bits of 32 weights.
int FifthBit(uint32_t bits, size_t j) { return static_cast<int>(bits >> j & 1) << 4; }

Integers Q5_0(const uint8_t* block) {  // f16 scale, 4 bytes of fifth bits, 16 bytes
  const auto fifth = Load<uint32_t>(block + 2);
  return Nibbles(block + 6, [&](int q, size_t j) { return (q | FifthBit(fifth, j)) - 16; });
}

void Scaled(const Integers& q, float d, float* x) {
  for (size_t j = 0; j < kBlock; ++j) x[j] = static_cast<float>(q[j]) * d;
}

void ScaledFrom(const Integers& q, float d, float least, float* x) {
  for (size_t j = 0; j < kBlock; ++j) x[j] = static_cast<float>(q[j]) * d + least;
}

void Q4_1(const uint8_t* block, float* x) {  // f16 scale, f16 minimum, 16 bytes
  ScaledFrom(Nibbles(block + 4, [](int q, size_t) { return q; }), Half(block), Half(block + 2), x);
}

void Q5_1(const uint8_t* block, float* x) {  // f16 scale, f16 minimum, 4 bytes of fifth bits, 16
                                             // bytes
  const auto fifth = Load<uint32_t>(block + 4);
  ScaledFrom(Nibbles(block + 8, [&](int q, size_t j) { return q | FifthBit(fifth, j); }),
             Half(block), Half(block + 2), x);
}

void Mxfp4(const uint8_t* block, float* x) {  // E8M0 exponent, 16 bytes
  Scaled(Nibbles(block + 1, [](int q, size_t) { return kMxfp4Values[static_cast<size_t>(q)]; }),
         Mxfp4Scale(block[0]), x);
}

// 16 scales of 4 bits and 16 minima of 4 bits, 64 bytes of four weights each, f16 scale of the
// scales and of the minima. A sub-block has 16 weights.
void Q2K(const uint8_t* block, float* x) {
  const uint8_t* quads = block + 16;
  const float d = Half(block + 80), dmin = Half(block + 82);
  for (size_t sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(Low(block[sub]));
    const float least = dmin * static_cast<float>(High(block[sub]));
    const uint8_t* at = quads + sub / 8 * 32 + sub % 2 * 16;
    const size_t shift = sub % 8 / 2 * 2;
    for (size_t j = 0; j < 16; ++j) *x++ = scale * static_cast<float>(at[j] >> shift & 3) - least;
  }
}

// 32 bytes of inverted third bits, 64 bytes of four weights' two low bits each, 16 scales of 6 bits
// in 12 bytes, f16 scale of the scales. A sub-block has 16 weights.
void Q3K(const uint8_t* block, float* x) {
  const uint8_t *third = block, *quads = block + 32, *scales = block + 96;
  const float d = Half(block + 108);
  for (size_t sub = 0; sub < 16; ++sub) {
    // Four low bits are in the first 8 bytes, two high bits in the last 4.
    const int low = sub < 8 ? Low(scales[sub]) : High(scales[sub - 8]);
    const int high = scales[8 + sub % 4] >> (sub / 4 * 2) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const uint8_t* at = quads + sub / 8 * 32 + sub % 2 * 16;
    const uint8_t* not_four = third + sub % 2 * 16;
    const size_t shift = sub % 8 / 2 * 2, bit = sub / 2;
    for (size_t j = 0; j < 16; ++j) {
      const int q = (at[j] >> shift & 3) - ((not_four[j] >> bit & 1) != 0 ? 0 : 4);
      *x++ = scale * static_cast<float>(q);
    }
  }
}

// Q4_K and Q5_K: f16 scale of the scales and of the minima, 12 bytes of both, in Q5_K 32 bytes of
// fifth bits, then 128 bytes of two weights each. A sub-block has 32 weights; two share 32 bytes.
template <bool kFifth>
void Q4OrQ5K(const uint8_t* block, float* x) {
  const float d = Half(block), dmin = Half(block + 2);
  const uint8_t *packed = block + 4, *fifth = block + 16, *bytes = block + (kFifth ? 48 : 16);
  for (size_t sub = 0; sub < 8; ++sub) {
    const auto [scale6, min6] = SixBits(packed, sub);
    const float scale = d * static_cast<float>(scale6), least = dmin * static_cast<float>(min6);
    const uint8_t* at = bytes + sub / 2 * 32;
    const size_t shift = sub % 2 * 4;
    for (size_t j = 0; j < kBlock; ++j) {
      int q = at[j] >> shift & 15;
      if (kFifth) q |= (fifth[j] >> sub & 1) << 4;
      *x++ = scale * static_cast<float>(q) - least;
    }
  }
}

// 128 bytes of two weights' four low bits each, 64 bytes of four weights' two high bits each, 16
// scales of 8 bits, f16 scale of the scales. A sub-block has 16 weights.
void Q6K(const uint8_t* block, float* x) {
  const float d = Half(block + 208);
  for (size_t sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + sub]));
    const size_t half = sub / 8, quarter = sub % 8 / 2, first = sub % 2 * 16;
    const uint8_t* low = block + half * 64 + quarter % 2 * 32 + first;
    const uint8_t* high = block + 128 + half * 32 + first;
    for (size_t j = 0; j < 16; ++j) {
      const int q = (low[j] >> (quarter / 2 * 4) & 15) | (high[j] >> (quarter * 2) & 3) << 4;
      *x++ = scale * static_cast<float>(q - 32);
    }
  }
}

// f16 scale, 8 scales of 6 bits (two high bits in 2 bytes, four low bits in 4), 128 bytes of two
// weights each.
void Iq4Xs(const uint8_t* block, float* x) {
  const float d = Half(block);
  const auto high = Load<uint16_t>(block + 2);
  for (size_t sub = 0; sub < 8; ++sub) {
    const int low = block[4 + sub / 2] >> (sub % 2 * 4) & 15;
    const float scale = d * static_cast<float>((low | (high >> (sub * 2) & 3) << 4) - 32);
    Scaled(Nibbles(block + 8 + sub * 16,
                   [](int q, size_t) { return kIq4Values[static_cast<size_t>(q)]; }),
           scale, x + sub * kBlock);
  }
}

using ExpandFn = Integers (*)(const uint8_t* block);
ExpandFn ExpansionOf(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return Q4_0;
    case TensorType::kQ5_0:
      return Q5_0;
    case TensorType::kIQ4_NL:
      return Iq4Nl;
    default:
      return nullptr;
  }
}

using DequantizeFn = void (*)(const uint8_t* block, float* x);
DequantizeFn DequantizationOf(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return [](const uint8_t* block, float* x) { Scaled(Q4_0(block), Half(block), x); };
    case TensorType::kQ5_0:
      return [](const uint8_t* block, float* x) { Scaled(Q5_0(block), Half(block), x); };
    case TensorType::kIQ4_NL:
      return [](const uint8_t* block, float* x) { Scaled(Iq4Nl(block), Half(block), x); };
    case TensorType::kQ4_1:
      return Q4_1;
    case TensorType::kQ5_1:
      return Q5_1;
    case TensorType::kQ2_K:
      return Q2K;
    case TensorType::kQ3_K:
      return Q3K;
    case TensorType::kQ4_K:
      return Q4OrQ5K<false>;
    case TensorType::kQ5_K:
      return Q4OrQ5K<true>;
    case TensorType::kQ6_K:
      return Q6K;
    case TensorType::kIQ4_XS:
      return Iq4Xs;
    case TensorType::kMXFP4:
      return Mxfp4;
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
    case TensorType::kQ8_0:
      break;
  }
  return nullptr;
}

}  // namespace

void DequantizeQuants(TensorType type, const char* blocks, std::span<float> x) {
  const DequantizeFn dequantize = DequantizationOf(type);
  const auto [elements, bytes] = LayoutOfGgufType(static_cast<uint32_t>(type));
  LARDER_CHECK(dequantize != nullptr && x.size() % elements == 0, "{} elements of type {}",
               x.size(), static_cast<uint32_t>(type));
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  for (size_t at = 0; at < x.size(); at += elements, block += bytes)
    dequantize(block, x.data() + at);
}

void DequantizeBlocks(TensorType type, const char* blocks, std::span<float> x) {
  type == TensorType::kQ8_0 ? DequantizeQ8_0(reinterpret_cast<const Q8Block*>(blocks), x)
                            : DequantizeQuants(type, blocks, x);
}

size_t FindBadScale(TensorType type, const char* blocks, size_t bytes) {
  const std::span<const size_t> halves = F16Offsets(type);
  const bool exponents = type == TensorType::kMXFP4;
  if (halves.empty() && !exponents) return SIZE_MAX;
  const size_t block_bytes = LayoutOfGgufType(static_cast<uint32_t>(type)).bytes;
  for (size_t block = 0; block * block_bytes < bytes; ++block) {
    if (exponents && static_cast<uint8_t>(blocks[block * block_bytes]) > kMaxMxfp4Exponent)
      return block;
    for (const size_t at : halves) {
      uint16_t scale;
      std::memcpy(&scale, blocks + block * block_bytes + at, sizeof(scale));
      if ((scale & 0x7c00) == 0x7c00) return block;
    }
  }
  return SIZE_MAX;
}

bool IsExpandable(TensorType type) { return ExpansionOf(type) != nullptr; }

void ExpandToQ8_0(TensorType type, const char* blocks, size_t n_blocks, Q8Block* out) {
  const ExpandFn expand = ExpansionOf(type);
  LARDER_CHECK(expand != nullptr, "type {}", static_cast<uint32_t>(type));
  const size_t bytes = LayoutOfGgufType(static_cast<uint32_t>(type)).bytes;
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  for (size_t b = 0; b < n_blocks; ++b, block += bytes) {
    out[b].d = Load<uint16_t>(block);
    const Integers q = expand(block);
    std::memcpy(out[b].q, q.data(), kBlock);
  }
}

}  // namespace larder::model::gguf
