#include "serving/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/error_testing.h"
#include "serving/sampling/sampler_testing.h"

namespace larder::serving::inline sampling {
namespace {

SamplingParams GreedyParams() {
  SamplingParams p;
  p.temperature = 0;
  return p;
}

std::vector<double> Softmax(const Logits& logits, double temperature) {
  std::vector<double> w;
  for (const float l : logits) w.push_back(std::exp(l / temperature));
  const double sum = std::accumulate(w.begin(), w.end(), 0.0);
  for (double& v : w) v /= sum;
  return w;
}

std::vector<int> Draw(const SamplingParams& params, const Logits& logits, int draws) {
  Sampler sampler(params, logits.size());
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(sampler.Sample(logits))];
  return counts;
}

double ChiSquare(const std::vector<int>& counts, const std::vector<double>& expected) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double chi = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0) {
      if (counts[i] > 0) return kInfinity;
      continue;
    }
    chi += std::pow(counts[i] - draws * expected[i], 2) / (draws * expected[i]);
  }
  return chi;
}

const Logits kLogits = {0.3f, -1.0f, 2.0f, 1.1f, 0.0f, -0.4f, 1.9f, 0.8f};
constexpr double kChi7 = 24.32;  // 99.9 % of samples stay below this, 7 degrees of freedom (5 or
                                 // fewer: 20.52, 2: 13.82)

TEST(Sampler, DrawsFollowTheSoftmax) {
  for (const float temperature : {0.5f, 1.0f, 1.7f}) {
    SamplingParams params = Plain(1);
    params.temperature = temperature;
    const auto counts = Draw(params, kLogits, 20000);
    EXPECT_LT(ChiSquare(counts, Softmax(kLogits, temperature)), kChi7) << temperature;
    // The bound is so tight that a slightly wrong temperature fails.
    EXPECT_GT(ChiSquare(counts, Softmax(kLogits, temperature * 1.1)), kChi7) << temperature;
  }
}

TEST(Sampler, TopKDrawsFromTheKLikeliest) {
  SamplingParams params = Plain(2);
  params.top_k = 3;
  Logits kept(kLogits.size(), -kInfinity);
  for (const size_t i : {2, 6, 3}) kept[i] = kLogits[i];
  EXPECT_LT(ChiSquare(Draw(params, kLogits, 20000), Softmax(kept, 1)), 13.82);
}

TEST(Sampler, ConsecutiveDrawsAreIndependent) {
  Sampler sampler(Plain(3), 2);
  const Logits coin = {0, 0};
  std::vector<int> pairs(4);
  for (int i = 0; i < 10000; ++i) {
    const TokenId first = sampler.Sample(coin);
    ++pairs[static_cast<size_t>(2 * first + sampler.Sample(coin))];
  }
  EXPECT_LT(ChiSquare(pairs, std::vector<double>(4, 0.25)), 16.27);  // 3 degrees of freedom
}

TEST(Sampler, TopPKeepsTheShortestPrefixThatReachesTheMass) {
  const Logits logits = {std::log(0.2f), std::log(0.5f), std::log(0.05f), std::log(0.25f)};
  const auto kept = [&](float top_p) {
    SamplingParams params = Plain(4);
    params.top_p = top_p;
    std::vector<int> ids;
    const auto counts = Draw(params, logits, 3000);
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) ids.push_back(static_cast<int>(i));
    }
    return ids;
  };
  EXPECT_EQ(kept(0), (std::vector<int>{1}));
  EXPECT_EQ(kept(0.49f), (std::vector<int>{1}));
  EXPECT_EQ(kept(0.51f), (std::vector<int>{1, 3}));
  EXPECT_EQ(kept(0.74f), (std::vector<int>{1, 3}));
  EXPECT_EQ(kept(0.76f), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(kept(1), (std::vector<int>{0, 1, 2, 3}));
}

TEST(Sampler, MinPIsRelativeToTheLikeliestAndIgnoresTemperature) {
  const Logits logits = {std::log(0.2f), std::log(0.5f), std::log(0.05f), std::log(0.25f)};
  SamplingParams params = Plain(5);
  params.temperature = 5;
  params.min_p = 0.41f;  // of 0.5: 0.205
  auto counts = Draw(params, logits, 3000);
  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_GT(counts[3], 0);
  params.min_p = 0.39f;
  counts = Draw(params, logits, 3000);
  EXPECT_EQ(counts[2], 0);
  EXPECT_GT(counts[0], 0);
}

// The definition, step by step with full sorts, against the fast selection: the same token for the
// same seed.
TokenId SlowSample(const SamplingParams& p, const Logits& logits, std::mt19937_64& generator) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](TokenId id) {
    return static_cast<double>(logits[static_cast<size_t>(id)]);
  };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](TokenId a, TokenId b) { return logit(a) > logit(b); });
  const double max = logit(ids[0]);
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < ids.size())
    ids.resize(static_cast<size_t>(p.top_k));
  double all = 0, mass = 0;
  for (const TokenId id : ids) all += std::exp(logit(id) - max);
  size_t keep = 0;
  while (keep < ids.size()) {
    mass += std::exp(logit(ids[keep++]) - max) / all;
    if (p.top_p < 1 && mass >= p.top_p) break;
  }
  ids.resize(keep);
  std::erase_if(ids, [&](TokenId id) { return std::exp(logit(id) - max) < p.min_p; });
  std::sort(ids.begin(), ids.end());
  double sum = 0, below = 0;
  for (const TokenId id : ids) sum += std::exp((logit(id) - max) / p.temperature);
  const double at = static_cast<double>(generator() >> 11) * 0x1p-53 * sum;
  for (const TokenId id : ids) {
    below += std::exp((logit(id) - max) / p.temperature);
    if (at < below) return id;
  }
  return ids.back();
}

TEST(Sampler, EqualsTheDefinitionForManyParameters) {
  std::mt19937_64 random(6);
  const auto pick = [&](auto... values) {
    const std::array all{values...};
    return all[random() % all.size()];
  };
  for (int i = 0; i < 600; ++i) {
    SamplingParams p;
    p.temperature = pick(0.1f, 0.8f, 1.0f, 3.0f);
    p.top_k = pick(-1, 0, 1, 2, 40, 300, 100000);
    p.top_p = pick(0.0f, 0.3f, 0.95f, 0.999f, 1.0f);
    p.min_p = pick(0.0f, 0.01f, 0.05f, 0.5f, 1.0f);
    p.seed = random();
    const size_t vocab = pick(size_t{1}, size_t{2}, size_t{41}, size_t{1000}, size_t{5003});
    const float spread = pick(0.0f, 0.5f, 3.0f);
    Sampler sampler(p, vocab);
    std::mt19937_64 generator(p.seed);
    for (int draw = 0; draw < 3; ++draw) {
      Logits logits(vocab);
      // Multiples of 1/4 make many equal logits, also at the borders of top-k and top-p.
      for (float& l : logits)
        l = spread * static_cast<float>(static_cast<int>(random() % 17) - 8) / 4;
      ASSERT_EQ(sampler.Sample(logits), SlowSample(p, logits, generator))
          << "case " << i << ": temperature " << p.temperature << " top_k " << p.top_k << " top_p "
          << p.top_p << " min_p " << p.min_p << " vocab " << vocab << " spread " << spread;
    }
  }
}

TEST(Sampler, SeedGivesTheSameTokensEverywhere) {
  Logits logits(100);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) / 16;
  SamplingParams params;
  params.seed = 42;
  Sampler sampler(params, logits.size());
  std::vector<TokenId> tokens;
  for (int i = 0; i < 8; ++i) tokens.push_back(sampler.Sample(logits));
  EXPECT_EQ(tokens, (std::vector<TokenId>{76, 60, 76, 19, 90, 13, 60, 38}));
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  Sampler sampler(GreedyParams(), 5);
  EXPECT_EQ(sampler.Sample(Logits{1, 3, 2, 3, 3}), 1);
  EXPECT_EQ(sampler.Sample(Logits{-kInfinity, -9, -9, -10, -kInfinity}), 1);
  SamplingParams top1 = Plain(7);
  top1.top_k = 1;
  EXPECT_EQ(Sampler(top1, 5).Sample(Logits{1, 3, 2, 3, 3}), 1);
}

TEST(Sampler, SaysWhatTheDrawWasFrom) {
  std::vector<std::pair<TokenId, double>> likeliest;
  const Logits logits = {std::log(4.0f), std::log(3.0f), -kInfinity, std::log(2.0f),
                         std::log(1.0f)};
  for (const bool usual : {true, false}) {
    SamplingParams params = Plain(3);
    params.top_k = 3;
    if (!usual) params.min_keep = 1;
    Sampler sampler(params, logits.size());
    const TokenId token = sampler.Sample(logits);
    const double own = sampler.Drawn(token, 2, likeliest);
    EXPECT_NEAR(own, (token == 0 ? 4.0 : token == 1 ? 3.0 : 2.0) / 9, 1e-6);
    ASSERT_EQ(likeliest.size(), 2u);
    EXPECT_EQ(likeliest[0].first, 0);
    EXPECT_NEAR(likeliest[0].second, 4.0 / 9, 1e-6) << "of those that top-k has kept";
    EXPECT_EQ(likeliest[1].first, 1);
    sampler.Drawn(token, 10, likeliest);
    EXPECT_EQ(likeliest.size(), 3u) << "no others have a probability";
    params.temperature = 2;
    Sampler warm(params, logits.size());
    warm.Drawn(warm.Sample(logits), 1, likeliest);
    EXPECT_NEAR(likeliest[0].second, 2 / (2 + std::sqrt(3.0) + std::sqrt(2.0)), 1e-6);
    params.temperature = 0;
    Sampler greedy(params, logits.size());
    EXPECT_EQ(greedy.Drawn(greedy.Sample(logits), 5, likeliest), 1.0);
    EXPECT_EQ(likeliest, (std::vector<std::pair<TokenId, double>>{{0, 1.0}}));
    EXPECT_EQ(greedy.Drawn(0, 0, likeliest), 1.0);
    EXPECT_TRUE(likeliest.empty());
  }
}

TEST(Sampler, BiasIsAddedFirstAndBans) {
  SamplingParams params = GreedyParams();
  params.logit_bias = {{0, -kInfinity}, {2, 1.5f}, {2, 1.0f}};
  Sampler sampler(params, 3);
  EXPECT_EQ(sampler.Sample(Logits{9, 2.4f, 0}), 2);
  EXPECT_EQ(sampler.Sample(Logits{9, 2.6f, 0}), 1);
  params = Plain(8);
  params.logit_bias = {{0, -kInfinity}};
  EXPECT_EQ(Draw(params, {3, 0, 0}, 1000)[0], 0);
}

TEST(Sampler, RepeatPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  SamplingParams params = GreedyParams();
  params.repeat_penalty = 2;
  Sampler sampler(params, 2);
  sampler.Accept(0);
  sampler.Accept(0);                              // occurrences do not matter to this one
  EXPECT_EQ(sampler.Sample(Logits{4, 1.9f}), 0);  // 4 / 2
  EXPECT_EQ(sampler.Sample(Logits{4, 2.1f}), 1);
  EXPECT_EQ(sampler.Sample(Logits{-1, -2.1f}), 0);  // -1 * 2
  EXPECT_EQ(sampler.Sample(Logits{-1, -1.9f}), 1);
}

TEST(Sampler, PresenceCountsOnceAndFrequencyEachTime) {
  SamplingParams params = GreedyParams();
  params.presence_penalty = 0.5f;
  params.frequency_penalty = 0.25f;
  Sampler sampler(params, 2);
  EXPECT_EQ(sampler.Sample(Logits{1.1f, 1}), 0);
  for (int i = 0; i < 3; ++i) sampler.Accept(0);  // 0.5 + 3 * 0.25 = 1.25
  EXPECT_EQ(sampler.Sample(Logits{2.26f, 1}), 0);
  EXPECT_EQ(sampler.Sample(Logits{2.24f, 1}), 1);
}

TEST(Sampler, PenaltiesForgetTokensOlderThanLastN) {
  const auto after_three = [](int repeat_last_n) {
    SamplingParams params = GreedyParams();
    params.presence_penalty = 1;
    params.repeat_last_n = repeat_last_n;
    Sampler sampler(params, 4);
    for (const TokenId token : {0, 1, 2}) sampler.Accept(token);
    return sampler.Sample(Logits{0.3f, 0.2f, 0.1f, 0});
  };
  EXPECT_EQ(after_three(0), 0);
  EXPECT_EQ(after_three(1), 0);
  EXPECT_EQ(after_three(2), 0);
  EXPECT_EQ(after_three(3), 3);
  EXPECT_EQ(after_three(-1), 3);
}

TEST(Sampler, BrokenLogitsAreAnError) {
  Sampler sampler({}, 3);
  for (const float bad : {std::nanf(""), kInfinity})
    EXPECT_THROW(sampler.Sample(Logits{0, bad, 1}), Error);
  EXPECT_THROW(sampler.Sample(Logits(3, -kInfinity)), Error);
  EXPECT_EQ(sampler.Sample(Logits{-kInfinity, 0, -kInfinity}), 1);
}

TEST(Validate, NamesTheParameter) {
  const auto text_of = [](auto change) -> std::string {
    SamplingParams params;
    change(params);
    return ErrorOf([&] { Sampler(params, 10); });
  };
  EXPECT_EQ(text_of([](auto&) {}), "no error");
  EXPECT_EQ(text_of([](auto& p) { p.top_p = 1.5f; }), "sampling: top_p is 1.5: expected 0 to 1");
  EXPECT_EQ(text_of([](auto& p) {
              p.logit_bias = {{10, 1.0f}};
            }),
            "sampling: logit_bias names token 10: expected 0 to 9");
  const auto expect_names = [](const std::string& text, const char* name) {
    EXPECT_NE(text.find(std::string("sampling: ") + name), std::string::npos) << text;
  };
  expect_names(text_of([](auto& p) { p.temperature = std::nanf(""); }), "temperature");
  expect_names(text_of([](auto& p) { p.min_p = -0.1f; }), "min_p");
  expect_names(text_of([](auto& p) { p.repeat_penalty = 0; }), "repeat_penalty");
  expect_names(text_of([](auto& p) { p.repeat_last_n = -2; }), "repeat_last_n");
  expect_names(text_of([](auto& p) { p.presence_penalty = kInfinity; }), "presence_penalty");
  expect_names(text_of([](auto& p) { p.frequency_penalty = std::nanf(""); }), "frequency_penalty");
  expect_names(text_of([](auto& p) { p.logit_bias = {{-1, 1.0f}}; }), "logit_bias");
  expect_names(text_of([](auto& p) { p.logit_bias = {{1, kInfinity}}; }), "logit_bias");
}

// The likeliest k, of equals the lower ids, whatever order the logits come in: ascending ones
// replace everything that was collected, equal ones reach every bound.
TEST(Candidates, CollectIsTheHeadOfTheRanking) {
  std::minstd_rand random(5);
  constexpr float kBanned = -std::numeric_limits<float>::infinity();
  const std::pair<const char*, std::function<float(size_t, size_t)>> kinds[] = {
      {"random", [&](size_t, size_t) { return static_cast<float>(random() % 100'000) * 1e-3f; }},
      {"many ties", [&](size_t, size_t) { return static_cast<float>(random() % 5); }},
      {"ascending", [](size_t i, size_t) { return static_cast<float>(i); }},
      {"descending", [](size_t i, size_t) { return -static_cast<float>(i); }},
      {"equal", [](size_t, size_t) { return -2.5f; }},
      {"mostly banned", [&](size_t i, size_t) { return i % 37 == 0 ? 1.0f : kBanned; }},
      {"the last only", [](size_t i, size_t n) { return i + 1 == n ? 1.0f : kBanned; }},
      {"none", [](size_t, size_t) { return kBanned; }}};
  for (const size_t vocab : {1, 7, 16, 100, 513, 5000}) {
    for (const size_t k : {size_t{1}, size_t{2}, size_t{40}, vocab - 1, vocab, size_t{0}}) {
      for (const auto& [name, logit] : kinds) {
        std::vector<float> logits(vocab);
        for (size_t i = 0; i < vocab; ++i) logits[i] = logit(i, vocab);
        std::vector<TokenId> expected;
        for (size_t i = 0; i < vocab; ++i)
          if (logits[i] > kBanned) expected.push_back(static_cast<TokenId>(i));
        std::ranges::stable_sort(expected, std::greater<>(),
                                 [&](TokenId id) { return logits[static_cast<size_t>(id)]; });
        if (k > 0 && k < expected.size()) expected.resize(k);
        std::ranges::sort(expected);
        Candidates candidates;
        candidates.Reserve(vocab, static_cast<int>(k));
        EXPECT_EQ(candidates.Collect(logits, static_cast<int>(k)),
                  *std::ranges::max_element(logits));
        std::vector<TokenId> got;
        candidates.SortById();
        candidates.EraseIf([&](const Candidate& c) {
          got.push_back(c.id);
          return false;
        });
        EXPECT_EQ(got, expected) << name << ", " << k << " of " << vocab;
      }
    }
  }
}

}  // namespace
}  // namespace larder::serving::sampling
