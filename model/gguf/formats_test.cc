#include "model/gguf/formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace larder::model::inline gguf {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value by the format's definition.
double F16ByDefinition(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * kInfinity;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(F16, AllValuesMatchTheDefinitionAndRoundTrip) {
  for (uint32_t u = 0; u < 65536; ++u) {
    const auto h = static_cast<uint16_t>(u);
    const float f = F16ToF32(h);
    const double expected = F16ByDefinition(h);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(f)) << u;
      ASSERT_EQ(F32ToF16(f) & 0x7e00, 0x7e00) << u;  // still a NaN, made quiet
      ASSERT_EQ(F32ToF16(f) & 0x8000, h & 0x8000) << u;
      continue;
    }
    ASSERT_EQ(f, expected) << u;
    ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0) << u;
    ASSERT_EQ(F32ToF16(f), h) << u;
  }
}

TEST(F16, RoundsToNearestEven) {
  for (uint32_t u = 0; u < 0x7bff; ++u) {  // every pair of neighbours
    const auto low = static_cast<uint16_t>(u), high = static_cast<uint16_t>(u + 1);
    const float middle = (F16ToF32(low) + F16ToF32(high)) / 2;  // exact in float
    const uint16_t even = (low & 1) == 0 ? low : high;
    ASSERT_EQ(F32ToF16(middle), even) << u;
    ASSERT_EQ(F32ToF16(-middle), even | 0x8000) << u;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, -kInfinity)), low) << u;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, kInfinity)), high) << u;
  }
}

TEST(F16, OverflowsToInfinity) {
  EXPECT_EQ(F32ToF16(65504.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(-1e30f), 0xfc00);
  EXPECT_EQ(F32ToF16(kInfinity), 0x7c00);
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNan) {
  for (uint32_t u = 0; u < 65536; ++u) {
    const auto h = static_cast<uint16_t>(u);
    const float f = Bf16ToF32(h);
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(f)))) << u;
    } else {
      ASSERT_EQ(F32ToBf16(f), h) << u;
    }
  }
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // ties go to even
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Formats, RowsConvertAsSingleValues) {
  std::vector<uint16_t> h(65536);
  for (size_t i = 0; i < h.size(); ++i) h[i] = static_cast<uint16_t>(i);
  std::vector<float> f(h.size());
  F16ToF32(h, f.data());
  std::vector<uint16_t> back(h.size());
  F32ToF16(f, back.data());
  for (size_t i = 0; i < h.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(f[i]), std::bit_cast<uint32_t>(F16ToF32(h[i]))) << i;
    ASSERT_EQ(back[i], F32ToF16(f[i])) << i;
  }
}

TEST(Q8, QuantisesAsDefined) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (const size_t n : {1u, 31u, 32u, 33u, 100u, 172u, 1024u}) {
    std::vector<float> x(n);
    for (float& v : x) v = normal(random);
    std::vector<Q8Block> blocks(CeilDiv(n, kBlock));
    QuantizeQ8_0(x, blocks.data());
    for (size_t b = 0; b < blocks.size(); ++b) {
      float top = 0.0f;
      for (size_t i = b * kBlock; i < std::min(n, (b + 1) * kBlock); ++i)
        top = std::max(top, std::fabs(x[i]));
      const float d = top / 127.0f;
      EXPECT_EQ(blocks[b].d, F32ToF16(d));
      for (size_t i = 0; i < kBlock; ++i) {
        const size_t at = b * kBlock + i;
        const float value = at < n ? x[at] : 0.0f;
        ASSERT_EQ(blocks[b].q[i], static_cast<int>(std::nearbyint(value * (1.0f / d))))
            << n << " " << at;
      }
    }
    std::vector<float> back(n);
    DequantizeQ8_0(blocks.data(), back);
    for (size_t i = 0; i < n; ++i) {
      const float d = F16ToF32(blocks[i / kBlock].d);
      ASSERT_EQ(back[i], d * static_cast<float>(blocks[i / kBlock].q[i % kBlock]));
      // Half a step, and the rounding of d to 11 bits over up to 127 steps.
      ASSERT_NEAR(back[i], x[i], d * (0.5f + 127.0f / 2048.0f));
    }
  }
}

TEST(Q8, ExtremeBlocks) {
  const auto quantise = [](float first, float second) {
    std::vector<float> x(kBlock, 0.0f);
    x[0] = first;
    x[1] = second;
    Q8Block block;
    QuantizeQ8_0(x, &block);
    return block;
  };
  const Q8Block zero = quantise(0.0f, -0.0f);
  EXPECT_EQ(zero.d, 0);
  EXPECT_EQ(zero.q[0], 0);
  const Q8Block tiny = quantise(1e-40f, -1e-44f);  // the scale is zero in f16
  EXPECT_EQ(tiny.d, 0);
  EXPECT_EQ(tiny.q[0], 0);
  const Q8Block large = quantise(-8e6f, 4e6f);
  EXPECT_EQ(large.q[0], -127);
  EXPECT_EQ(large.q[1], 64);                  // 63.5 ties to even
  EXPECT_EQ(quantise(1e9f, 0.0f).d, 0x7c00);  // beyond f16's range: the reader refuses it
}

TEST(Formats, FindsWhatIsNotFinite) {
  for (const size_t n : {1u, 5u, 64u, 1000u}) {
    std::vector<float> x(n, -1e38f);
    EXPECT_TRUE(AllFinite(x));
    for (const float bad : {kInfinity, -kInfinity, std::nanf(""), -std::nanf("")}) {
      for (const size_t at : {size_t{0}, n / 2, n - 1}) {
        std::vector<float> y = x;
        y[at] = bad;
        EXPECT_FALSE(AllFinite(y)) << n << " " << at << " " << bad;
      }
    }
  }
  EXPECT_TRUE(AllFinite({}));
}

TEST(Formats, TypeNamesAndSizes) {
  EXPECT_EQ(GgufTypeName(0), "F32");
  EXPECT_EQ(GgufTypeName(2), "Q4_0");
  EXPECT_EQ(GgufTypeName(8), "Q8_0");
  EXPECT_EQ(GgufTypeName(12), "Q4_K");
  EXPECT_EQ(GgufTypeName(14), "Q6_K");
  EXPECT_EQ(GgufTypeName(16), "IQ2_XXS");
  EXPECT_EQ(GgufTypeName(20), "IQ4_NL");
  EXPECT_EQ(GgufTypeName(23), "IQ4_XS");
  EXPECT_EQ(GgufTypeName(29), "IQ1_M");
  EXPECT_EQ(GgufTypeName(30), "BF16");
  EXPECT_EQ(GgufTypeName(39), "MXFP4");
  EXPECT_EQ(GgufTypeName(41), "unknown");
  EXPECT_EQ(GgufTypeName(0xffffffff), "unknown");
  for (uint32_t type = 0; type < 64; ++type) {
    const std::set<uint32_t> readable = {0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30, 39};
    EXPECT_EQ(IsReadableType(type), readable.contains(type)) << type;
  }
  EXPECT_EQ(RowBytes(TensorType::kF32, 5), 20u);
  EXPECT_EQ(RowBytes(TensorType::kF16, 5), 10u);
  EXPECT_EQ(RowBytes(TensorType::kBF16, 5), 10u);
  EXPECT_EQ(RowBytes(TensorType::kQ8_0, 64), 68u);
  EXPECT_DEATH(RowBytes(TensorType::kQ8_0, 33), "row of 33 elements");
}

}  // namespace
}  // namespace larder::model::gguf
