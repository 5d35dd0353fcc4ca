#include "serving/sampling/sampler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace larder::serving::inline sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// llama.cpp's samplers beside those that are usual, and other orders, take the long way.
bool IsUsual(const SamplingParams& p) {
  return p.typical_p >= 1 && p.top_n_sigma <= 0 && p.xtc_probability <= 0 && p.min_keep == 0 &&
         !p.uses_dry() && p.dynatemp_range <= 0 && p.mirostat == 0 &&
         p.samplers == DefaultSamplers();
}

// The logits of tokens without a bit become -infinity. Most words of a mask are all zeros or all
// ones.
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
    for (size_t i = 0; i < n; ++i)
      logits[begin + i] = (word >> i & 1) != 0 ? logits[begin + i] : -kInfinity;
  }
}

}  // namespace

void Sampler::ThrowNoToken() {
  throw EveryTokenIsBanned("sampling: every token is banned: expected logit_bias to leave one");
}

Sampler::Sampler(SamplingParams params, size_t vocab, const model::Tokenizer* tokenizer)
    : params_(std::move(params)), logits_(vocab), generator_(params_.seed) {
  LARDER_CHECK(vocab > 0);
  Validate(params_, vocab);
  usual_ = IsUsual(params_);
  candidates_.Reserve(vocab, params_.top_k);
  mirostat_mu_ = 2 * static_cast<double>(params_.mirostat_tau);
  const auto reach = [](int last_n) { return last_n < 0 ? SIZE_MAX : static_cast<size_t>(last_n); };
  if (params_.penalizes()) history_ = reach(params_.repeat_last_n);
  if (params_.uses_dry()) {
    dry_.emplace(params_, tokenizer);
    history_ = std::max(history_, reach(params_.dry_penalty_last_n));
  }
}

void Sampler::Accept(TokenId token) {
  if (dry_) dry_->Accept(token);
  if (params_.repeat_last_n == 0 || !params_.penalizes()) return;
  ++counts_[token];
  if (params_.repeat_last_n < 0) return;
  recent_.push_back(token);
  if (recent_.size() > static_cast<size_t>(params_.repeat_last_n)) {
    const auto oldest = counts_.find(recent_.front());
    if (--oldest->second == 0) counts_.erase(oldest);
    recent_.pop_front();
  }
}

std::span<const float> Sampler::Adjust(std::span<const float> logits,
                                       std::span<const uint64_t> allowed) {
  LARDER_CHECK(logits.size() == logits_.size(), "{} logits for a vocabulary of {}", logits.size(),
               logits_.size());
  // False for NaN and +infinity; without a branch, so that it vectorises.
  int bad = 0;
  for (const float logit : logits) bad |= !(logit < kInfinity);
  if (bad) {
    const auto at =
        std::find_if(logits.begin(), logits.end(), [](float v) { return !(v < kInfinity); });
    throw Error(
        "sampling: the logit of token {} is {}: expected a finite number; the model's weights or "
        "the arithmetic are broken",
        at - logits.begin(), *at);
  }
  if (usual_ && allowed.empty() && params_.logit_bias.empty() && counts_.empty()) return logits;
  std::copy(logits.begin(), logits.end(), logits_.begin());
  if (!allowed.empty()) Forbid(allowed, logits_);
  for (const auto& [token, bias] : params_.logit_bias) logits_[static_cast<size_t>(token)] += bias;
  if (usual_) Penalize();
  return logits_;
}

void Sampler::ChangeLogit(TokenId token, const std::function<float(float)>& change) {
  if (token < 0 || static_cast<size_t>(token) >= logits_.size()) return;
  if (narrowed_) return candidates_.Change(token, change);
  float& logit = logits_[static_cast<size_t>(token)];
  logit = change(logit);
}

void Sampler::Penalize() {
  for (const auto& [token, count] : counts_) {
    const float less =
        static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty;
    ChangeLogit(token, [&, by = params_.repeat_penalty](float logit) {
      return (logit > 0 ? logit / by : logit * by) - less;
    });
  }
}

// 53 bits of the generator. The C++ standard defines the generator's bits, but not those of its
// distributions.
double Sampler::NextUniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }

TokenId Sampler::Sample(std::span<const float> given, std::span<const uint64_t> allowed) {
  const std::span<const float> logits = Adjust(given, allowed);
  if (!usual_) return SampleByChain();
  greedy_ = params_.temperature <= 0;
  const float max = greedy_ ? MaxOf(logits) : candidates_.Collect(logits, params_.top_k);
  if (max == -kInfinity) ThrowNoToken();
  if (greedy_)
    return static_cast<TokenId>(std::find(logits.begin(), logits.end(), max) - logits.begin());
  // Probabilities at temperature 1 decide what is kept; the sum runs in ascending order of id for a
  // fixed result.
  if (params_.top_k > 0) candidates_.SortById();
  const double all = candidates_.Weigh(max, 1);
  // Top-p comes before min-p, but both keep a prefix of the same ranking, so their order does not
  // matter. Dropping by min-p first avoids sorting the tail.
  if (params_.min_p > 0) {
    candidates_.EraseIf([&](const Candidate& c) { return c.weight < params_.min_p; });
  }
  if (params_.top_p < 1) candidates_.KeepTopP(params_.top_p * all);
  // In order of id, so that a filter that drops no token does not change the draw either.
  if (params_.top_p < 1) candidates_.SortById();
  const double sum = candidates_.Weigh(max, params_.temperature);
  return candidates_.Draw(NextUniform() * sum);
}

double Sampler::Drawn(TokenId token, size_t most,
                      std::vector<std::pair<TokenId, double>>& likeliest) const {
  likeliest.clear();
  if (greedy_) {
    if (most > 0) likeliest.emplace_back(token, 1.0);
    return 1;
  }
  double sum = 0, of_token = 0;
  for (const Candidate& c : candidates_.all()) {
    sum += c.weight;
    if (c.id == token) of_token = c.weight;
    if (most > 0 && c.weight > 0) likeliest.emplace_back(c.id, c.weight);
  }
  const auto before = [](const auto& a, const auto& b) {
    return a.second > b.second || (a.second == b.second && a.first < b.first);
  };
  const auto end =
      likeliest.begin() + static_cast<std::ptrdiff_t>(std::min(most, likeliest.size()));
  std::partial_sort(likeliest.begin(), end, likeliest.end(), before);
  likeliest.erase(end, likeliest.end());
  for (auto& [id, weight] : likeliest) weight /= sum;
  return of_token / sum;
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

size_t IndentLimit::Keep(std::string_view piece) {
  if (least_ == 0) return piece.size();
  for (size_t i = 0; i < piece.size() && !stopped_; ++i) {
    if (in_indent_ && (piece[i] == ' ' || piece[i] == '\t')) {
      ++blanks_;
    } else if (in_indent_ && blanks_ < least_) {
      stopped_ = true;
      return i;
    } else {
      in_indent_ = piece[i] == '\n';
      blanks_ = 0;
    }
  }
  return stopped_ ? 0 : piece.size();
}

std::string StopStrings::Finish() { return std::exchange(held_, {}); }

}  // namespace larder::serving::sampling
