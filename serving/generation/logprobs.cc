#include "serving/generation/logprobs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace larder::serving::inline generation {
namespace {

constexpr size_t kLanes = 16;  // the compiler turns lanes side by side into vectors

// e^-below for below >= 0, with a relative error of about 2e-7: 2^n * (polynomial of degree 6 in
// r), |r| <= ln2/2. It has no branch and no libm, so it vectorises; beyond 87 the result is
// negligible. (The bits of positive floats compare like the floats. A comparison of floats may
// trap, so the compiler makes a branch.)
float ExpOfMinus(float below) {
  const float x =
      -std::bit_cast<float>(std::min(std::bit_cast<int32_t>(below), std::bit_cast<int32_t>(87.0f)));
  constexpr float kRound = 0x1.8p23f, kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;
  const float shifted = x * 0x1.715476p+0f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float sum = 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) + 127;  // its low bits are n
  return sum * std::bit_cast<float>(exponent << 23);
}

float MaxOf(std::span<const float> logits) {
  std::array<float, kLanes> most;
  most.fill(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
  }
  for (; i < logits.size(); ++i) most[0] = std::max(most[0], logits[i]);
  return *std::max_element(most.begin(), most.end());
}

double SumOfExp(std::span<const float> logits, float max) {
  constexpr size_t kBlock = 512;
  float terms[kBlock];
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - begin);
    for (size_t i = 0; i < n; ++i)
      terms[i] = ExpOfMinus(max - logits[begin + i]);  // this loop is vectorised
    for (size_t i = 0; i < n; ++i) sum += static_cast<double>(terms[i]);
  }
  return sum;
}

// The likeliest tokens with their logits, best first; of equals the lower id. One pass: soon almost
// no logit beats the worst one that is kept. The only allocation is the result's.
std::vector<std::pair<TokenId, float>> Likeliest(std::span<const float> logits, size_t count) {
  count = std::min(count, logits.size());
  std::vector<std::pair<TokenId, float>> best;
  best.reserve(count);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (best.size() == count && !(logits[i] > best.back().second)) continue;
    if (best.size() == count) best.pop_back();
    const auto at =
        std::upper_bound(best.begin(), best.end(), logits[i],
                         [](float value, const auto& kept) { return value > kept.second; });
    best.emplace(at, static_cast<TokenId>(i), logits[i]);
  }
  return best;
}

}  // namespace

// It runs on the compute thread, so other sequences wait for it: with libm and a partial sort,
// 32,000 logits took 0.3 ms.
TokenLogprobs LogprobsOf(std::span<const float> logits, TokenId token, size_t top) {
  const float max = MaxOf(logits);
  const double log_sum = static_cast<double>(max) + std::log(SumOfExp(logits, max));
  const auto of = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
  };
  TokenLogprobs result{
      .token = token, .logprob = of(logits[static_cast<size_t>(token)]), .top = {}};
  if (top == 0) return result;
  result.top = Likeliest(logits, top);
  for (auto& [id, value] : result.top) value = of(value);
  return result;
}

uint32_t RankOf(std::span<const float> logits, TokenId token) {
  const auto at = static_cast<size_t>(token);
  uint32_t before = 0;
  for (const float logit : logits) before += logit > logits[at];
  for (const float logit : logits.first(at)) before += logit == logits[at];
  return before + 1;
}

}  // namespace larder::serving::generation
