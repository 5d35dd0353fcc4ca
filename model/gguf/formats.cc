#include "model/gguf/formats.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace larder::model::inline gguf {
namespace {

struct NamedLayout {
  std::string_view name;
  GgufTypeLayout layout;
};

// By GGUF type number. Numbers 4, 5, 31-33 and 36-38 were withdrawn by the format; the last two
// groups were repacked variants of Q4_0 and IQ4_NL.
constexpr std::array<NamedLayout, 41> kTypes = {{
    {"F32", {1, 4}},        {"F16", {1, 2}},        {"Q4_0", {32, 18}},     {"Q4_1", {32, 20}},
    {"Q4_2", {0, 0}},       {"Q4_3", {0, 0}},       {"Q5_0", {32, 22}},     {"Q5_1", {32, 24}},
    {"Q8_0", {32, 34}},     {"Q8_1", {32, 36}},     {"Q2_K", {256, 84}},    {"Q3_K", {256, 110}},
    {"Q4_K", {256, 144}},   {"Q5_K", {256, 176}},   {"Q6_K", {256, 210}},   {"Q8_K", {256, 292}},
    {"IQ2_XXS", {256, 66}}, {"IQ2_XS", {256, 74}},  {"IQ3_XXS", {256, 98}}, {"IQ1_S", {256, 50}},
    {"IQ4_NL", {32, 18}},   {"IQ3_S", {256, 110}},  {"IQ2_S", {256, 82}},   {"IQ4_XS", {256, 136}},
    {"I8", {1, 1}},         {"I16", {1, 2}},        {"I32", {1, 4}},        {"I64", {1, 8}},
    {"F64", {1, 8}},        {"IQ1_M", {256, 56}},   {"BF16", {1, 2}},       {"Q4_0_4_4", {32, 18}},
    {"Q4_0_4_8", {32, 18}}, {"Q4_0_8_8", {32, 18}}, {"TQ1_0", {256, 54}},   {"TQ2_0", {256, 66}},
    {"IQ4_NL_4_4", {0, 0}}, {"IQ4_NL_4_8", {0, 0}}, {"IQ4_NL_8_8", {0, 0}}, {"MXFP4", {32, 17}},
    {"NVFP4", {0, 0}},
}};

uint32_t Bits(float f) { return __builtin_bit_cast(uint32_t, f); }
float FromBits(uint32_t u) { return __builtin_bit_cast(float, u); }

constexpr uint32_t kExponentMask = 0x7f800000;

}  // namespace

std::string_view GgufTypeName(uint32_t gguf_type) {
  return gguf_type < kTypes.size() ? kTypes[gguf_type].name : "unknown";
}

GgufTypeLayout LayoutOfGgufType(uint32_t gguf_type) {
  return gguf_type < kTypes.size() ? kTypes[gguf_type].layout : GgufTypeLayout{};
}

bool IsReadableType(uint32_t gguf_type) {
  switch (static_cast<TensorType>(gguf_type)) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ8_0:
    case TensorType::kQ2_K:
    case TensorType::kQ3_K:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
    case TensorType::kQ6_K:
    case TensorType::kIQ4_NL:
    case TensorType::kIQ4_XS:
    case TensorType::kBF16:
    case TensorType::kMXFP4:
      return true;
  }
  return false;
}

// Both cases are computed and one is selected, so that loops over rows vectorise. The subnormal
// case uses an integer conversion, not a multiplication of a float32 subnormal, so it is right on a
// thread that flushes subnormals to zero.
float F16ToF32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t magnitude = h & 0x7fff;
  const uint32_t subnormal = Bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | kExponentMask;  // infinity or NaN, payload kept
  const uint32_t finite = magnitude < 0x400 ? subnormal : normal;
  return FromBits(sign | (magnitude >= 0x7c00 ? special : finite));
}

uint16_t F32ToF16(float f) {
  const uint32_t sign = (Bits(f) >> 16) & 0x8000;
  uint32_t magnitude = Bits(f) & 0x7fffffff;
  if (magnitude > kExponentMask)
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  if (magnitude >= 0x477ff000)
    return static_cast<uint16_t>(sign | 0x7c00);  // from 65520 on: nearest is infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14: one unit of the result is 2^-24, the last place of 0.5f, so this addition rounds
    // to it.
    return static_cast<uint16_t>(sign | (Bits(FromBits(magnitude) + 0.5f) - Bits(0.5f)));
  }
  magnitude += 0x0fff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23)) >> 13));
}

uint16_t F32ToBf16(float f) {
  const uint32_t u = Bits(f);
  if ((u & 0x7fffffff) > kExponentMask)
    return static_cast<uint16_t>((u >> 16) | 0x40);  // stays a NaN
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

void F16ToF32(std::span<const uint16_t> h, float* f) {
  for (size_t i = 0; i < h.size(); ++i) f[i] = F16ToF32(h[i]);
}

void F32ToF16(std::span<const float> f, uint16_t* h) {
  for (size_t i = 0; i < f.size(); ++i) h[i] = F32ToF16(f[i]);
}

bool AllFinite(std::span<const float> x) {
  // Magnitudes of floats compare like integers, so one maximum finds NaN and infinity.
  int32_t top = 0;
  for (const float f : x) top = std::max(top, static_cast<int32_t>(Bits(f) & 0x7fffffff));
  return top < static_cast<int32_t>(kExponentMask);
}

namespace {

void QuantizeBlock(const float* x, Q8Block& block) {
  int32_t top = 0;
  for (size_t i = 0; i < kBlock; ++i)
    top = std::max(top, static_cast<int32_t>(Bits(x[i]) & 0x7fffffff));
  const float scale = FromBits(static_cast<uint32_t>(top)) / 127.0f;
  block.d = F32ToF16(scale);
  if (block.d == 0) {  // 1 / scale could overflow, and every q stands for zero
    std::memset(block.q, 0, sizeof block.q);
    return;
  }
  const float inverse = 1.0f / scale;
  // Adding 1.5 * 2^23 leaves the integer nearest to the float (ties to even) in the low bits of its
  // mantissa.
  for (size_t i = 0; i < kBlock; ++i)
    block.q[i] = static_cast<int8_t>(Bits(x[i] * inverse + 0x1.8p23f) & 0xff);
}

}  // namespace

void QuantizeQ8_0(std::span<const float> x, Q8Block* blocks) {
  const size_t whole = x.size() / kBlock;
  for (size_t b = 0; b < whole; ++b) QuantizeBlock(x.data() + b * kBlock, blocks[b]);
  if (const size_t rest = x.size() % kBlock; rest != 0) {
    std::array<float, kBlock> padded{};
    std::copy_n(x.data() + whole * kBlock, rest, padded.data());
    QuantizeBlock(padded.data(), blocks[whole]);
  }
}

void DequantizeQ8_0(const Q8Block* blocks, std::span<float> x) {
  for (size_t first = 0; first < x.size(); first += kBlock) {
    const Q8Block& block = blocks[first / kBlock];
    const float d = F16ToF32(block.d);
    const size_t n = std::min(kBlock, x.size() - first);
    for (size_t i = 0; i < n; ++i) x[first + i] = d * static_cast<float>(block.q[i]);
  }
}

size_t RowBytes(TensorType type, size_t cols) {
  const GgufTypeLayout layout = LayoutOfGgufType(static_cast<uint32_t>(type));
  LARDER_CHECK(layout.elements != 0 && cols % layout.elements == 0, "row of {} elements of type {}",
               cols, static_cast<uint32_t>(type));
  return cols / layout.elements * layout.bytes;
}

std::span<const size_t> F16Offsets(TensorType type) {
  static constexpr std::array<size_t, 2> kFirstTwo = {0, 2}, kQ2K = {80, 82};
  static constexpr std::array<size_t, 1> kQ3K = {108}, kQ6K = {208};
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return kFirstTwo;
    case TensorType::kQ2_K:
      return kQ2K;
    case TensorType::kQ3_K:
      return kQ3K;
    case TensorType::kQ6_K:
      return kQ6K;
    case TensorType::kQ4_0:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
    case TensorType::kIQ4_NL:
    case TensorType::kIQ4_XS:
      return std::span(kFirstTwo).first(1);
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
    case TensorType::kMXFP4:
      break;
  }
  return {};
}

}  // namespace larder::model::gguf
