// The steps that are off by default, in any order, against their definitions: full sorts, libm, no
// shortcuts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/error_testing.h"
#include "model/tokenizer/tokenizer_data.h"
#include "serving/sampling/exact_math.h"
#include "serving/sampling/sampler.h"
#include "serving/sampling/sampler_testing.h"

namespace larder::serving::inline sampling {
namespace {

// The definitions. Holds what a sequence has accepted.
class Reference {
 public:
  explicit Reference(const SamplingParams& params)
      : p_(params), generator_(params.seed), mu_(2 * params.mirostat_tau) {}

  void Accept(TokenId token) { accepted_.push_back(token); }

  TokenId Sample(const Logits& logits) {
    list_.clear();
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > -kInfinity) list_.push_back({logits[i], static_cast<TokenId>(i), 0});
    }
    bool greedy = false;
    for (const SamplerStep step : p_.samplers) {
      const bool logits_only = step == SamplerStep::kPenalties || step == SamplerStep::kDry;
      if (p_.mirostat == 0 || logits_only) Apply(step);
      greedy |= step == SamplerStep::kTemperature && p_.mirostat == 0;
    }
    if (p_.mirostat != 0) Apply(SamplerStep::kTemperature);
    greedy = (greedy || p_.mirostat != 0) && p_.temperature <= 0 && p_.dynatemp_range <= 0;
    Weigh();
    if (greedy) return list_[0].id;
    if (p_.mirostat == 2) {
      size_t keep = 0;
      while (keep < list_.size() && -std::log2(list_[keep].p) <= mu_) ++keep;
      list_.resize(std::max<size_t>(keep, 1));
      Weigh();
    } else if (p_.mirostat == 1) {
      double tb = 0, tt = 0;
      for (size_t i = 0; i + 1 < std::min<size_t>(100, list_.size()); ++i) {
        const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
        tb += t * std::log(list_[i].p / list_[i + 1].p);
        tt += t * t;
      }
      const double s = tb / tt, epsilon = s - 1, size = static_cast<double>(logits.size());
      double k = std::pow(2, mu_);  // where all are equally likely and the formula has no value
      if (s > 0) k = std::pow(epsilon * std::pow(2, mu_) / (1 - std::pow(size, -epsilon)), 1 / s);
      if (k < static_cast<double>(list_.size()))
        list_.resize(static_cast<size_t>(std::max(k, 1.0)));
      Weigh();
    }
    std::sort(list_.begin(), list_.end(), [](const One& a, const One& b) { return a.id < b.id; });
    double at = Uniform();
    const One* chosen = &list_.back();
    for (const One& one : list_) {
      if (at < one.p) {
        chosen = &one;
        break;
      }
      at -= one.p;
    }
    mu_ -= p_.mirostat_eta * (-std::log2(chosen->p) - p_.mirostat_tau);
    return chosen->id;
  }

 private:
  struct One {
    double logit;
    TokenId id;
    double p;
  };

  double Uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }

  // Probabilities, likeliest first.
  void Weigh() {
    std::sort(list_.begin(), list_.end(), [](const One& a, const One& b) {
      return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    });
    double sum = 0;
    for (One& one : list_) sum += one.p = std::exp(one.logit - list_[0].logit);
    for (One& one : list_) one.p /= sum;
  }

  void Apply(SamplerStep step) {
    Weigh();
    switch (step) {
      case SamplerStep::kPenalties: {
        const size_t n = std::min(accepted_.size(), static_cast<size_t>(p_.repeat_last_n));
        for (One& one : list_) {
          const auto count =
              std::count(accepted_.end() - static_cast<ptrdiff_t>(n), accepted_.end(), one.id);
          if (count == 0) continue;
          one.logit = one.logit > 0 ? one.logit / p_.repeat_penalty : one.logit * p_.repeat_penalty;
          one.logit -= static_cast<double>(count) * p_.frequency_penalty + p_.presence_penalty;
        }
        break;
      }
      case SamplerStep::kDry:
        for (One& one : list_) {
          // The longest repetition that the token would continue.
          size_t longest = 0;
          const size_t n = accepted_.size();
          // the earlier repetition ends at `end`
          for (size_t end = 0; end + 1 < n + (n == 0); ++end) {
            if (accepted_[end + 1] != one.id) continue;
            size_t length = 0;
            while (length <= end && accepted_[end - length] == accepted_[n - 1 - length]) ++length;
            longest = std::max(longest, length);
          }
          if (longest < static_cast<size_t>(p_.dry_allowed_length) || longest == 0) continue;
          one.logit -= p_.dry_multiplier *
                       std::pow(p_.dry_base, static_cast<double>(longest) - p_.dry_allowed_length);
        }
        break;
      case SamplerStep::kTopNSigma: {
        if (p_.top_n_sigma <= 0) break;
        double mean = 0, variance = 0;
        for (const One& one : list_) mean += one.logit / static_cast<double>(list_.size());
        for (const One& one : list_)
          variance += std::pow(one.logit - mean, 2) / static_cast<double>(list_.size());
        const double least = list_[0].logit - p_.top_n_sigma * std::sqrt(variance);
        std::erase_if(list_, [&](const One& one) { return one.logit < least; });
        break;
      }
      case SamplerStep::kTopK:
        if (p_.top_k > 0) list_.resize(std::min(list_.size(), static_cast<size_t>(p_.top_k)));
        break;
      case SamplerStep::kTypicalP: {
        if (p_.typical_p >= 1) break;
        double entropy = 0;
        for (const One& one : list_) entropy -= one.p > 0 ? one.p * std::log(one.p) : 0;
        // Rounded, so that equal ones are equal.
        const auto off = [&](const One& one) {
          return std::round(std::abs(-std::log(one.p) - entropy) * 1e9);
        };
        std::stable_sort(list_.begin(), list_.end(),
                         [&](const One& a, const One& b) { return off(a) < off(b); });
        double mass = 0;
        for (size_t i = 0; i < list_.size(); ++i) {
          mass += list_[i].p;
          if (mass > p_.typical_p && i + 1 >= p_.min_keep) list_.resize(i + 1);
        }
        break;
      }
      case SamplerStep::kTopP: {
        if (p_.top_p >= 1) break;
        double mass = 0;
        for (size_t i = 0; i < list_.size(); ++i) {
          mass += list_[i].p;
          if (mass >= p_.top_p && i + 1 >= p_.min_keep) list_.resize(i + 1);
        }
        break;
      }
      case SamplerStep::kMinP:
        while (list_.size() > std::max<size_t>(p_.min_keep, 1) &&
               list_.back().p < p_.min_p * list_[0].p)
          list_.pop_back();
        break;
      case SamplerStep::kXtc: {
        if (p_.xtc_probability <= 0 || Uniform() >= p_.xtc_probability) break;
        size_t likely = 0;
        while (likely < list_.size() && list_[likely].p >= p_.xtc_threshold) ++likely;
        if (likely >= 2 && list_.size() - (likely - 1) >= p_.min_keep)
          list_.erase(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(likely - 1));
        break;
      }
      case SamplerStep::kTemperature: {
        double temperature = p_.temperature;
        if (p_.dynatemp_range > 0) {
          if (list_.size() < 2) break;
          double entropy = 0;
          for (const One& one : list_) entropy -= one.p > 0 ? one.p * std::log(one.p) : 0;
          const double share =
              std::clamp(entropy / std::log(static_cast<double>(list_.size())), 0.0, 1.0);
          const double low = std::max(0.0f, p_.temperature - p_.dynatemp_range);
          const double high = p_.temperature + p_.dynatemp_range;
          temperature = low + (high - low) * std::pow(share, p_.dynatemp_exponent);
        }
        if (temperature <= 0) {
          list_.resize(1);
        } else {
          for (One& one : list_) one.logit /= temperature;
        }
        break;
      }
    }
  }

  const SamplingParams p_;
  std::mt19937_64 generator_;
  double mu_;
  std::vector<TokenId> accepted_;
  std::vector<One> list_;
};

class ChainTest : public testing::TestWithParam<int> {};

// Any steps in any order. No shares that a few equal probabilities reach exactly.
TEST_P(ChainTest, EqualsTheDefinitions) {
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  const auto pick = [&](auto... values) {
    const std::array all{values...};
    return all[random() % all.size()];
  };
  for (int i = 0; i < 150; ++i) {
    SamplingParams p;
    p.temperature = pick(0.0f, 0.3f, 0.8f, 1.0f, 3.0f);
    p.top_k = pick(0, 0, 1, 5, 40, 100000);
    p.top_p = pick(0.313f, 0.953f, 1.0f, 1.0f);
    p.min_p = pick(0.0f, 0.0f, 0.0517f, 0.513f);
    p.typical_p = pick(1.0f, 0.217f, 0.813f);
    p.top_n_sigma = pick(-1.0f, 0.517f, 1.519f);
    p.xtc_probability = pick(0.0f, 0.5f, 1.0f);
    p.xtc_threshold = pick(0.0137f, 0.0931f, 0.331f);
    p.dynatemp_range = pick(0.0f, 0.0f, 0.4f, 1.7f);
    p.dynatemp_exponent = pick(1.0f, 0.5f, 2.5f, 0.0f);
    p.min_keep = pick(size_t{0}, size_t{0}, size_t{1}, size_t{7});
    p.repeat_penalty = pick(1.0f, 1.3f);
    p.presence_penalty = pick(0.0f, 0.37f);
    p.frequency_penalty = pick(0.0f, 0.21f);
    p.repeat_last_n = pick(0, 3, 64);
    p.dry_multiplier = pick(0.0f, 0.8f);
    p.dry_allowed_length = pick(1, 2, 4);
    p.mirostat = pick(0, 0, 0, 1, 2);
    p.mirostat_tau = pick(0.7f, 3.0f, 5.0f);
    p.mirostat_eta = pick(0.1f, 0.6f);
    p.seed = random();
    if (random() % 2 == 0) {
      std::shuffle(p.samplers.begin(), p.samplers.end(), random);
      p.samplers.resize(random() % (p.samplers.size() + 1));
    }
    const size_t vocab = pick(size_t{1}, size_t{2}, size_t{41}, size_t{1003});
    // Mirostat 1 of equal logits keeps 2^mu, which rounding moves over a whole number.
    const float spread = p.mirostat == 1 ? pick(0.5f, 3.0f) : pick(0.0f, 0.5f, 3.0f);
    // Continuous logits where rounding decides ties in ways that the definition does not.
    const bool grid = p.mirostat == 0 && p.typical_p >= 1 && random() % 2 == 0;
    Sampler sampler(p, vocab);
    Reference reference(p);
    std::normal_distribution<float> normal;
    for (int draw = 0; draw < 12; ++draw) {
      Logits logits(vocab);
      for (float& l : logits)
        l = spread *
            (grid ? static_cast<float>(static_cast<int>(random() % 17) - 8) / 4 : normal(random));
      if (draw == 5) {  // everything is masked but one
        std::fill(logits.begin(), logits.end(), -kInfinity);
        logits[random() % vocab] = -3;
      }
      const TokenId token = sampler.Sample(logits);
      ASSERT_EQ(token, reference.Sample(logits))
          << "case " << i << " draw " << draw << ": " << FormatSamplers(p.samplers)
          << " temperature " << p.temperature << " top_k " << p.top_k << " top_p " << p.top_p
          << " min_p " << p.min_p << " typical " << p.typical_p << " sigma " << p.top_n_sigma
          << " xtc " << p.xtc_probability << "/" << p.xtc_threshold << " dynatemp "
          << p.dynatemp_range << "^" << p.dynatemp_exponent << " keep " << p.min_keep << " dry "
          << p.dry_multiplier << " mirostat " << p.mirostat << " vocab " << vocab << " spread "
          << spread << " grid " << grid;
      // Few different tokens, so that there are repetitions.
      const TokenId next = static_cast<TokenId>(random() % std::min<size_t>(vocab, 3));
      sampler.Accept(next);
      reference.Accept(next);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChainTest, testing::Range(0, 4));

// The long way with nothing on is the usual way, to the bit: the same draws.
TEST(SamplerChain, EqualsTheUsualWay) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    SamplingParams usual;
    usual.temperature = std::array{0.0f, 0.5f, 1.0f, 2.0f}[random() % 4];
    usual.top_k = std::array{0, 1, 40, 400}[random() % 4];
    usual.top_p = std::array{0.3f, 0.95f, 1.0f}[random() % 3];
    usual.min_p = std::array{0.0f, 0.05f}[random() % 2];
    usual.seed = random();
    usual.repeat_penalty = 1.1f;
    SamplingParams chain = usual;
    chain.samplers.push_back(SamplerStep::kDry);
    Sampler a(usual, 500), b(chain, 500);
    for (int draw = 0; draw < 5; ++draw) {
      Logits logits(500);
      for (float& l : logits) l = static_cast<float>(static_cast<int>(random() % 64)) / 8;
      const TokenId token = a.Sample(logits);
      ASSERT_EQ(token, b.Sample(logits)) << i;
      a.Accept(token);
      b.Accept(token);
    }
  }
}

std::vector<double> Shares(const SamplingParams& p, const Logits& logits, int draws) {
  Sampler sampler(p, logits.size());
  std::vector<double> shares(logits.size());
  for (int i = 0; i < draws; ++i)
    shares[static_cast<size_t>(sampler.Sample(logits))] += 1.0 / draws;
  return shares;
}

double ChiSquare(const std::vector<double>& shares, const std::vector<double>& expected,
                 int draws) {
  double chi = 0;
  for (size_t i = 0; i < shares.size(); ++i)
    chi += draws * (shares[i] - expected[i]) * (shares[i] - expected[i]) / expected[i];
  return chi;
}

// Probabilities .4 .3 .2 .1, threshold .15: half of the draws are from .2 and .1 alone.
TEST(SamplerChain, XtcDropsTheLikeliestAsOftenAsItShould) {
  const Logits logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  SamplingParams p = Plain(9);
  p.xtc_probability = 0.5f;
  p.xtc_threshold = 0.15f;
  const auto shares = Shares(p, logits, 20000);
  const std::vector<double> expected = {0.2, 0.15, 0.1 + 0.5 * 2 / 3, 0.05 + 0.5 / 3};
  EXPECT_LT(ChiSquare(shares, expected, 20000), 16.27);  // 99.9 % stay below, 3 degrees of freedom
  const std::vector<double> never = {0.4, 0.3, 0.2, 0.1};
  EXPECT_GT(ChiSquare(shares, never, 20000), 16.27);
  p.min_keep = 3;  // the two that would be left are too few
  EXPECT_LT(ChiSquare(Shares(p, logits, 20000), never, 20000), 16.27);
  p.min_keep = 0;
  p.xtc_threshold = 0.6f;  // no token is as probable
  EXPECT_LT(ChiSquare(Shares(p, logits, 20000), never, 20000), 16.27);
}

// Both versions steer the mean surprise to tau bits, whatever the distribution's own is.
TEST(SamplerChain, MirostatReachesItsSurprise) {
  for (const int version : {1, 2}) {
    for (const float tau : {2.0f, 4.0f}) {
      SamplingParams p = Plain(static_cast<uint64_t>(version));
      p.mirostat = version;
      p.mirostat_tau = tau;
      Sampler sampler(p, 2000);
      Logits logits(2000);
      for (size_t i = 0; i < logits.size(); ++i)
        logits[i] = -1.1f * std::log(static_cast<float>(i + 1));
      double sum = 0, surprise = 0;
      for (const float l : logits) sum += std::exp(l);
      constexpr int kDraws = 3000;
      for (int i = 0; i < kDraws; ++i) {
        const auto token = static_cast<size_t>(sampler.Sample(logits));
        surprise -= std::log2(std::exp(logits[token]) / sum) / kDraws;
      }
      // Its own probabilities are renormalised among what is kept, so its surprises are a little
      // smaller.
      EXPECT_GT(surprise, tau - 0.2) << version;
      EXPECT_LT(surprise, tau + 1.6) << version;
    }
  }
}

TEST(SamplerChain, OneTokenHasAllTheMass) {
  Logits logits(50, -1e5f);
  logits[17] = 1e5f;
  for (const int mirostat : {0, 1, 2}) {
    SamplingParams p = Plain();
    p.mirostat = mirostat;
    p.typical_p = 0.5f;
    p.top_n_sigma = 1;
    p.xtc_probability = 1;
    p.dynatemp_range = 0.5f;
    Sampler sampler(p, logits.size());
    for (int i = 0; i < 20; ++i) EXPECT_EQ(sampler.Sample(logits), 17) << mirostat;
  }
}

TEST(SamplerChain, AllAreEquallyLikely) {
  for (const int mirostat : {0, 1, 2}) {
    SamplingParams p = Plain();
    p.mirostat = mirostat;
    p.typical_p = 0.9f;
    p.top_n_sigma = 1;
    p.xtc_probability = 1;
    p.xtc_threshold = 0.05f;
    p.dynatemp_range = 0.5f;
    Sampler sampler(p, 10);
    for (int i = 0; i < 50; ++i) {
      const TokenId token = sampler.Sample(Logits(10, 3.0f));
      ASSERT_TRUE(token >= 0 && token < 10);
      // Typical keeps the nine first (0.9f is below 0.9), XTC of these the last.
      if (mirostat == 0) {
        EXPECT_EQ(token, 8);
      }
    }
  }
  Sampler banned(Plain(), 3);
  EXPECT_THROW(banned.Sample(Logits(3, -kInfinity)), EveryTokenIsBanned);
  SamplingParams p = Plain();
  p.mirostat = 2;
  EXPECT_THROW(Sampler(p, 3).Sample(Logits(3, -kInfinity)), EveryTokenIsBanned);
}

TEST(SamplerChain, TheSameSeedGivesTheSameTokensEverywhere) {
  Logits logits(100);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) / 16;
  const auto tokens = [&](const auto& change) {
    SamplingParams p;
    p.seed = 42;
    change(p);
    Sampler sampler(p, logits.size());
    std::vector<TokenId> all;
    for (int i = 0; i < 6; ++i) all.push_back(sampler.Sample(logits));
    return all;
  };
  EXPECT_EQ(tokens([](auto& p) { p.xtc_probability = 0.5f, p.xtc_threshold = 0.02f; }),
            (std::vector<TokenId>{60, 19, 13, 38, 43, 54}));
  EXPECT_EQ(tokens([](auto& p) { p.mirostat = 2; }),
            (std::vector<TokenId>{76, 60, 76, 19, 90, 13}));
  EXPECT_EQ(tokens([](auto& p) { p.dynatemp_range = 0.5f, p.dynatemp_exponent = 1.3f; }),
            (std::vector<TokenId>{76, 62, 76, 16, 90, 13}));
}

TEST(SamplerChain, TheOrderMatters) {
  const Logits logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  SamplingParams p = Plain();
  p.temperature = 0.25f;  // .87 .11 .02
  p.top_p = 0.75f;
  p.samplers = ParseSamplers("top_p;temperature");
  EXPECT_GT(Shares(p, logits, 3000)[1], 0);
  p.samplers = ParseSamplers("temperature;top_p");
  EXPECT_EQ(Shares(p, logits, 3000)[1], 0);
  p.samplers = ParseSamplers("top_p");  // no temperature: .5 and .3 of .8
  EXPECT_NEAR(Shares(p, logits, 20000)[1], 0.375, 0.02);
  p.samplers = {};
  EXPECT_NEAR(Shares(p, logits, 20000)[2], 0.2, 0.02);
}

TEST(Samplers, HaveLlamaCppsNames) {
  EXPECT_EQ(FormatSamplers(DefaultSamplers()),
            "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature");
  EXPECT_EQ(ParseSamplers("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"),
            DefaultSamplers());
  EXPECT_EQ(ParseSamplers("top-k;nucleus;typical;temp"),
            (std::vector{SamplerStep::kTopK, SamplerStep::kTopP, SamplerStep::kTypicalP,
                         SamplerStep::kTemperature}));
  EXPECT_TRUE(ParseSamplers("").empty());
  for (const char* wrong : {"top_k;;top_p", "top_q", "TOP_K", "infill"})
    EXPECT_THROW(ParseSamplers(wrong), Error);
}

TEST(Samplers, WrongValuesAreNamed) {
  const auto text_of = [](auto change) -> std::string {
    SamplingParams params;
    change(params);
    return ErrorOf([&] { Sampler(params, 10); });
  };
  EXPECT_EQ(text_of([](auto& p) { p.typical_p = 1.5f; }),
            "sampling: typical_p is 1.5: expected 0 to 1");
  EXPECT_EQ(text_of([](auto& p) { p.dry_base = 0.5f; }),
            "sampling: dry_base is 0.5: expected 1 to 1000000");
  EXPECT_EQ(text_of([](auto& p) { p.mirostat = 3; }),
            "sampling: mirostat is 3: expected 0 (off), 1 or 2");
  EXPECT_EQ(text_of([](auto& p) { p.dry_sequence_breakers = {""}; }),
            "sampling: dry_sequence_breakers has a text of 0 bytes: expected 1 to 40");
  const auto expect_names = [](const std::string& text, const char* name) {
    EXPECT_NE(text.find(std::string("sampling: ") + name), std::string::npos) << text;
  };
  expect_names(text_of([](auto& p) { p.top_n_sigma = std::nanf(""); }), "top_n_sigma");
  expect_names(text_of([](auto& p) { p.xtc_probability = -0.1f; }), "xtc_probability");
  expect_names(text_of([](auto& p) { p.xtc_threshold = 1.1f; }), "xtc_threshold");
  expect_names(text_of([](auto& p) { p.dry_multiplier = -1; }), "dry_multiplier");
  expect_names(text_of([](auto& p) { p.dry_allowed_length = -1; }), "dry_allowed_length");
  expect_names(text_of([](auto& p) { p.dry_penalty_last_n = -2; }), "dry_penalty_last_n");
  expect_names(text_of([](auto& p) { p.dry_sequence_breakers.assign(65, "x"); }),
               "dry_sequence_breakers");
  expect_names(text_of([](auto& p) { p.dynatemp_range = -1; }), "dynatemp_range");
  expect_names(text_of([](auto& p) { p.dynatemp_exponent = kInfinity; }), "dynatemp_exponent");
  expect_names(text_of([](auto& p) { p.mirostat_tau = -1; }), "mirostat_tau");
  expect_names(text_of([](auto& p) { p.mirostat_eta = std::nanf(""); }), "mirostat_eta");
  expect_names(text_of([](auto& p) { p.samplers.assign(33, SamplerStep::kDry); }), "samplers");
}

// Within two units in the last place of libm's, which are at most one off themselves.
TEST(ExactMath, IsExactEnough) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 100000; ++i) {
    const double share = static_cast<double>(random() >> 11) * 0x1p-53;
    const double x = -700 * share * share;
    ASSERT_NEAR(ExpOfNegative(x), std::exp(x), std::exp(x) * 1e-15) << x;
    const double y = std::exp(1300 * share - 650);
    ASSERT_NEAR(Log(y), std::log(y), std::max(1.0, std::abs(std::log(y))) * 4e-16) << y;
    const double near = 1 + (share - 0.5) * 0.01;
    ASSERT_NEAR(Log(near), std::log(near), 4e-16) << near;
  }
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(ExpOfNegative(0), 1);
  EXPECT_EQ(ExpOfNegative(-kInfinity), 0);
  EXPECT_EQ(Exp(1e9), 1e300);
  EXPECT_NEAR(Exp(1), 2.718281828459045, 1e-15);
}

}  // namespace
}  // namespace larder::serving::sampling
