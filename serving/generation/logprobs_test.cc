#include "serving/generation/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace larder::serving::inline generation {
namespace {

// The definition, in double precision with a full sort.
TokenLogprobs Slowly(const std::vector<float>& logits, TokenId token, size_t top) {
  double sum = 0, max = -INFINITY;
  for (const float logit : logits) max = std::max(max, static_cast<double>(logit));
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const auto of = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - max -
                              std::log(sum));
  };
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  TokenLogprobs result{.token = token, .logprob = of(token), .top = {}};
  for (size_t i = 0; i < std::min(top, ids.size()); ++i)
    result.top.emplace_back(ids[i], of(ids[i]));
  return result;
}

TEST(LogprobsOf, IsTheDefinition) {
  std::mt19937 random(1);
  for (const size_t vocab : {1u, 2u, 15u, 16u, 511u, 512u, 513u, 32003u}) {
    for (const float spread : {0.0f, 1.0f, 20.0f, 300.0f}) {
      std::vector<float> logits(vocab);
      for (float& logit : logits)  // coarse, so that some are equal
        logit = spread * static_cast<float>(static_cast<int>(random() % 1000) - 500) / 500;
      logits[random() % vocab] = 1.5f * spread + 1;
      if (vocab > 15) logits[random() % vocab] = -std::numeric_limits<float>::infinity();
      const auto token = static_cast<TokenId>(random() % vocab);
      for (const size_t top : {0u, 1u, 5u, 20u}) {
        const TokenLogprobs want = Slowly(logits, token, top), got = LogprobsOf(logits, token, top);
        const auto near = [](float a, float b) {
          return a == b || std::fabs(a - b) <= 1e-5f + 1e-6f * std::fabs(b);
        };
        EXPECT_TRUE(near(got.logprob, want.logprob))
            << got.logprob << " " << want.logprob << " of " << vocab;
        ASSERT_EQ(got.top.size(), want.top.size());
        for (size_t i = 0; i < got.top.size(); ++i) {
          EXPECT_EQ(got.top[i].first, want.top[i].first) << i << " of " << vocab;
          EXPECT_TRUE(near(got.top[i].second, want.top[i].second));
        }
      }
    }
  }
}

TEST(RankOf, CountsTheLikelierAndEqualsBefore) {
  const std::vector<float> logits = {1, 3, 2, 3, -1, 2};
  const std::vector<uint32_t> ranks = {5, 1, 3, 2, 6, 4};
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_EQ(RankOf(logits, static_cast<TokenId>(i)), ranks[i]);
  const TokenLogprobs all = LogprobsOf(logits, 0, logits.size());
  for (size_t i = 0; i < all.top.size(); ++i)
    EXPECT_EQ(RankOf(logits, all.top[i].first), i + 1) << "the order of the likeliest";
}

}  // namespace
}  // namespace larder::serving::generation
