// A mask of allowed tokens (a grammar's) comes before all other parameters.
#include <gtest/gtest.h>

#include <vector>

#include "serving/sampling/sampler.h"

namespace larder::serving::inline sampling {
namespace {

TEST(SamplerMaskTest, OnlyAllowedTokensAreChosen) {
  constexpr size_t kVocab = 150;
  std::vector<float> logits(kVocab);
  for (size_t i = 0; i < kVocab; ++i) logits[i] = static_cast<float>(i % 7);
  std::vector<uint64_t> allowed = {uint64_t{1} << 5, 0, uint64_t{1} << 3 | uint64_t{1} << 20};
  for (const float temperature : {0.0f, 2.0f}) {
    Sampler sampler({.temperature = temperature, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 7},
                    kVocab);
    std::vector<int> seen(kVocab);
    for (int i = 0; i < 300; ++i) ++seen[static_cast<size_t>(sampler.Sample(logits, allowed))];
    EXPECT_EQ(seen[5] + seen[131] + seen[148], 300);
    EXPECT_TRUE(temperature <= 0 || (seen[5] > 0 && seen[131] > 0 && seen[148] > 0));
  }
}

TEST(SamplerMaskTest, AFullMaskChangesNothing) {
  constexpr size_t kVocab = 100;
  std::vector<float> logits(kVocab);
  for (size_t i = 0; i < kVocab; ++i) logits[i] = static_cast<float>(i * 37 % 11);
  const std::vector<uint64_t> all(2, ~uint64_t{0});
  Sampler with({.seed = 3}, kVocab), without({.seed = 3}, kVocab);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(with.Sample(logits, all), without.Sample(logits));
}

TEST(SamplerMaskTest, NoTokenAllowedIsNamed) {
  const std::vector<float> logits(10);
  const std::vector<uint64_t> none(1);
  Sampler sampler({}, 10);
  EXPECT_THROW(sampler.Sample(logits, none), EveryTokenIsBanned);
}

}  // namespace
}  // namespace larder::serving::sampling
