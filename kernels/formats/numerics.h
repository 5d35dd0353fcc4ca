// The arithmetic that every instruction set repeats bit for bit, in plain C++: Exp, Sum16 and the
// constants of quantisation. kernels/rows/elementwise.h states the formulas; the generated kernels
// take their constants from this file. Pure functions, any thread.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace larder::kernels::inline formats {

// Raised whenever the bits of a result change. Part of the Plan's hash, so that processes that
// would disagree refuse each other. What each version brought: 2: products are summed in chunks of
// 1,024 inputs (kSumBlocks). 3: weights of Q6_K, Q4_1 and MXFP4 stay as they are, not rounded to
// Q8_0. 4: large biases of K are not cached with the keys (model/config/key_bias.h), weights of the
// softmax are INT8 (ChunkWeights), and logits of likely tokens have inputs of two planes
// (weight_node/likely_panels.h). 5: queries and keys are quantised as Walsh-Hadamard transforms
// (Elementwise::quantize_hadamard).
inline constexpr uint32_t kArithmeticVersion = 5;

namespace numerics {

// Exp: below kExpLow the result would be denormal (< 2^-126); above kExpHigh it would overflow.
inline constexpr float kExpLow = -87.33654f;
inline constexpr float kExpHigh = 88.0f;
inline constexpr float kLog2E = 0x1.715476p+0f;
// ln 2 in two parts; the first has 11 trailing zero bits, so that its products with |n| <= 127 are
// exact.
inline constexpr float kLn2High = 0x1.62e400p-1f;
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
// exp(r) = 1 + r + c2 r^2 + ... + c6 r^6 on |r| <= ln(2)/2. The first two coefficients are fixed at
// 1; the others minimise the largest relative error (Lawson's iteration in 40 digits): 3.1e-9
// before rounding to float32, so that the roundings of Horner's scheme dominate. Taylor's
// coefficients give 1.2e-7 before any rounding.
inline constexpr float kExpC2 = 0x1.fffffcp-2f;
inline constexpr float kExpC3 = 0x1.555490p-3f;
inline constexpr float kExpC4 = 0x1.5558f4p-5f;
inline constexpr float kExpC5 = 0x1.123a2cp-7f;
inline constexpr float kExpC6 = 0x1.6a2360p-10f;

// GELU by tanh: sigmoid's argument is g * (kGeluSlope + kGeluCube * g^2), negated.
inline constexpr float kGeluSlope = -1.5957691216057308f;  // -2 sqrt(2 / pi)
inline constexpr float kGeluCube = -0.07135481627159961f;  // 0.044715 times that
// The clamped gate (gpt-oss): the limit of both inputs, and sigmoid's argument is g times the
// slope, negated.
inline constexpr float kGateLimit = 7.0f;
inline constexpr float kClampedSlope = -1.702f;

// Quantisation: the two lowest mantissa bits of d are cleared (act_block.h says why).
inline constexpr uint32_t kScaleMask = ~uint32_t{3};
inline constexpr float kQuantZero = 0x1p-100f;  // a block whose largest magnitude is smaller
                                                // becomes all zero
inline constexpr float kQuantMax = 127.0f;
inline constexpr float kWeightMax = 255.0f;  // the largest quantised weight of the softmax, which
                                             // is unsigned
inline constexpr float kInverseWeightMax = 1.0f / kWeightMax;

}  // namespace numerics

// NaN gives 0.
inline float Exp(float x) {
  if (!(x >= numerics::kExpLow)) return 0.0f;
  if (x > numerics::kExpHigh) x = numerics::kExpHigh;
  const float n = std::rint(x * numerics::kLog2E);
  float r = std::fma(n, -numerics::kLn2High, x);
  r = std::fma(n, -numerics::kLn2Low, r);
  float p = numerics::kExpC6;
  for (const float c :
       {numerics::kExpC5, numerics::kExpC4, numerics::kExpC3, numerics::kExpC2, 1.0f, 1.0f})
    p = std::fma(p, r, c);
  const auto shift = static_cast<uint32_t>(static_cast<int32_t>(n)) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + shift);
}

inline float Sum16(const float* v) {
  float t[8], u[4];
  for (size_t j = 0; j < 8; ++j) t[j] = v[j] + v[j + 8];
  for (size_t j = 0; j < 4; ++j) u[j] = t[j] + t[j + 4];
  return (u[0] + u[2]) + (u[1] + u[3]);
}

}  // namespace larder::kernels::formats
