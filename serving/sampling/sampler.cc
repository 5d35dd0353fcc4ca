#include "serving/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace larder::serving::inline sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 1/0! .. 1/13!
constexpr auto kInverseFactorials = [] {
  std::array<double, 14> f{1};
  double factorial = 1;
  for (size_t i = 1; i < f.size(); ++i) f[i] = 1 / (factorial *= static_cast<double>(i));
  return f;
}();

// e^x for x <= 0: 2^n * (Taylor series of degree 13 in r), |r| <= ln2/2; the truncation error is 4e-18.
// libm's exp is not used because its last bit differs between versions and CPUs, which would rarely give a
// different token. ln2 is split so that n * kLn2High is exact.
double ExpOfNegative(double x) {
  if (x < -700) return 0;  // e^-700 = 1e-304; a smaller n would also run out of the exponent field below
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const double n = std::nearbyint(x * 0x1.71547652b82fep+0);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = kInverseFactorials.back();
  for (size_t i = kInverseFactorials.size() - 1; i > 0; --i) sum = sum * r + kInverseFactorials[i - 1];
  return sum * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52);
}

void CheckRange(const char* name, float value, float low, float high) {
  if (!(value >= low && value <= high)) {
    throw Error("sampling: {} is {}: expected {} to {}", name, value, low, high);
  }
}

// The logits of tokens without a bit become -infinity. Most words of a mask are all zeros or all ones.
void Forbid(std::span<const uint64_t> allowed, std::span<float> logits) {
  LARDER_CHECK(64 * allowed.size() >= logits.size());
  for (size_t begin = 0; begin < logits.size(); begin += 64) {
    const uint64_t word = allowed[begin / 64];
    if (word == ~uint64_t{0}) continue;
    const size_t n = std::min<size_t>(64, logits.size() - begin);
    if (word == 0) {
      std::fill_n(&logits[begin], n, -kInfinity);
      continue;
    }
    for (size_t i = 0; i < n; ++i) logits[begin + i] = (word >> i & 1) != 0 ? logits[begin + i] : -kInfinity;
  }
}

}  // namespace

void Validate(const SamplingParams& p, size_t vocab) {
  // Larger values would change only the rounding, and the limit keeps float32 logits clear of infinity.
  constexpr float kMost = 1e6f;
  CheckRange("temperature", p.temperature, -kMost, kMost);
  CheckRange("top_p", p.top_p, 0, 1);
  CheckRange("min_p", p.min_p, 0, 1);
  CheckRange("repeat_penalty", p.repeat_penalty, 1e-3f, 1e3f);
  CheckRange("presence_penalty", p.presence_penalty, -kMost, kMost);
  CheckRange("frequency_penalty", p.frequency_penalty, -kMost, kMost);
  if (p.repeat_last_n < -1) {
    throw Error(
        "sampling: repeat_last_n is {}: expected -1 (the whole sequence), 0 (off) or a number of tokens",
        p.repeat_last_n);
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || static_cast<size_t>(token) >= vocab) {
      throw Error("sampling: logit_bias names token {}: expected 0 to {}", token, vocab - 1);
    }
    if (bias != -kInfinity) CheckRange("logit_bias", bias, -kMost, kMost);
  }
}

bool Sampler::Before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

Sampler::Sampler(SamplingParams params, size_t vocab)
    : params_(std::move(params)), logits_(vocab), generator_(params_.seed) {
  LARDER_CHECK(vocab > 0);
  Validate(params_, vocab);
  const bool few = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < vocab;
  candidates_.reserve(few ? std::min(vocab, 2 * static_cast<size_t>(params_.top_k)) : vocab);
}

void Sampler::Accept(TokenId token) {
  if (params_.repeat_last_n == 0) return;
  ++counts_[token];
  if (params_.repeat_last_n < 0) return;
  recent_.push_back(token);
  if (recent_.size() > static_cast<size_t>(params_.repeat_last_n)) {
    const auto oldest = counts_.find(recent_.front());
    if (--oldest->second == 0) counts_.erase(oldest);
    recent_.pop_front();
  }
}

void Sampler::Adjust(std::span<const float> logits, std::span<const uint64_t> allowed) {
  LARDER_CHECK(logits.size() == logits_.size(), "{} logits for a vocabulary of {}", logits.size(),
               logits_.size());
  // False for NaN and +infinity; without a branch, so that it vectorises.
  int bad = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    logits_[i] = logits[i];
    bad |= !(logits[i] < kInfinity);
  }
  if (bad) {
    const auto at = std::find_if(logits.begin(), logits.end(), [](float v) { return !(v < kInfinity); });
    throw Error(
        "sampling: the logit of token {} is {}: expected a finite number; the model's weights or the "
        "arithmetic are broken",
        at - logits.begin(), *at);
  }
  if (!allowed.empty()) Forbid(allowed, logits_);
  for (const auto& [token, bias] : params_.logit_bias) logits_[static_cast<size_t>(token)] += bias;
  for (const auto& [token, count] : counts_) {
    if (token < 0 || static_cast<size_t>(token) >= logits_.size()) continue;
    float& logit = logits_[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    logit -= static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty;
  }
}

float Sampler::Max() const {
  // The compiler turns sixteen maxima side by side into vectors. std::max_element takes 300 us for 128,256
  // logits, this loop 27 us (Zen 4).
  std::array<float, 16> most;
  most.fill(-kInfinity);
  size_t i = 0;
  for (; i + most.size() <= logits_.size(); i += most.size()) {
    for (size_t j = 0; j < most.size(); ++j) most[j] = logits_[i + j] > most[j] ? logits_[i + j] : most[j];
  }
  for (; i < logits_.size(); ++i) most[0] = std::max(most[0], logits_[i]);
  return *std::max_element(most.begin(), most.end());
}

// One pass over the vocabulary. Only logits above the k-th best so far are collected, soon almost none. The
// buffer holds up to 2k of them; when it is full the best k stay. An id later in the pass never beats an
// equal logit.
void Sampler::Collect() {
  candidates_.clear();
  const size_t vocab = logits_.size();
  const bool few = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < vocab;
  const size_t k = few ? static_cast<size_t>(params_.top_k) : vocab;
  const size_t capacity = std::min(2 * k, vocab);
  float threshold = -kInfinity;
  const auto cut = [&] {
    if (candidates_.size() <= k) return;
    const auto last = candidates_.begin() + static_cast<ptrdiff_t>(k - 1);
    std::nth_element(candidates_.begin(), last, candidates_.end(), Before);
    threshold = last->logit;
    candidates_.resize(k);
  };
  for (size_t i = 0; i < vocab; ++i) {
    if (!(logits_[i] > threshold)) continue;
    if (candidates_.size() == capacity) {
      cut();
      if (!(logits_[i] > threshold)) continue;
    }
    candidates_.push_back({logits_[i], static_cast<TokenId>(i), 0});
  }
  cut();
}

// Keeps the shortest prefix, in order of probability, that reaches `mass`. It sorts only as much as needed:
// usually a few tokens of a large vocabulary have most of the probability.
void Sampler::KeepTopP(double mass) {
  double sum = 0;
  size_t sorted = 0;
  for (size_t step = 64; sorted < candidates_.size(); step *= 4) {
    const size_t end = std::min(candidates_.size(), sorted + step);
    const auto at = [&](size_t i) { return candidates_.begin() + static_cast<ptrdiff_t>(i); };
    if (end < candidates_.size()) std::nth_element(at(sorted), at(end), candidates_.end(), Before);
    std::sort(at(sorted), at(end), Before);
    for (; sorted < end; ++sorted) {
      sum += candidates_[sorted].weight;
      if (sum >= mass) {
        candidates_.resize(sorted + 1);
        return;
      }
    }
  }
}

// 53 bits of the generator. The C++ standard defines the generator's bits, but not those of its
// distributions.
double Sampler::NextUniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }

TokenId Sampler::Sample(std::span<const float> logits, std::span<const uint64_t> allowed) {
  Adjust(logits, allowed);
  const float max = Max();
  if (max == -kInfinity)
    throw EveryTokenIsBanned("sampling: every token is banned: expected logit_bias to leave one");

  if (params_.temperature <= 0) {
    return static_cast<TokenId>(std::find(logits_.begin(), logits_.end(), max) - logits_.begin());
  }

  Collect();
  // Probabilities at temperature 1 decide what is kept; the sum runs in ascending order of id for a fixed
  // result.
  if (params_.top_k > 0) {
    std::sort(candidates_.begin(), candidates_.end(), [](auto& a, auto& b) { return a.id < b.id; });
  }
  double all = 0;
  for (Candidate& c : candidates_) all += c.weight = ExpOfNegative(static_cast<double>(c.logit) - max);
  // Top-p comes before min-p, but both keep a prefix of the same ranking, so their order does not matter.
  // Dropping by min-p first avoids sorting the tail.
  if (params_.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params_.min_p; });
  }
  if (params_.top_p < 1) KeepTopP(params_.top_p * all);
  // In order of id, so that a filter that drops no token does not change the draw either.
  if (params_.top_p < 1) {
    std::sort(candidates_.begin(), candidates_.end(), [](auto& a, auto& b) { return a.id < b.id; });
  }
  double sum = 0;
  for (Candidate& c : candidates_) {
    sum += c.weight = ExpOfNegative((static_cast<double>(c.logit) - max) / params_.temperature);
  }
  double left = NextUniform() * sum;
  for (const Candidate& c : candidates_) {
    if (left < c.weight) return c.id;
    left -= c.weight;
  }
  return candidates_.back().id;  // by rounding, `left` is still positive after the last candidate
}

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw Error("stop string is empty: expected at least one character");
  }
}

std::string StopStrings::Add(std::string_view piece) {
  if (stopped()) return {};
  held_ += piece;
  size_t first_end = std::string::npos, first_begin = 0;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t begin = held_.find(stops_[i]);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stops_[i].size();
    if (end < first_end || (end == first_end && begin < first_begin)) {
      first_end = end;
      first_begin = begin;
      matched_ = static_cast<int>(i);
    }
  }
  size_t safe = held_.size();
  if (stopped()) {
    safe = first_begin;
  } else {
    for (const std::string& stop : stops_) {
      for (size_t n = std::min(stop.size() - 1, held_.size()); held_.size() - n < safe; --n) {
        if (held_.ends_with(std::string_view(stop).substr(0, n))) safe = held_.size() - n;
      }
    }
  }
  std::string out = held_.substr(0, safe);
  held_ = stopped() ? std::string() : held_.substr(safe);
  return out;
}

std::string StopStrings::Finish() { return std::exchange(held_, {}); }

}  // namespace larder::serving::sampling
