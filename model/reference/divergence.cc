#include "model/reference/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace larder::model::inline reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether the row has a softmax: neither NaN nor +infinity, and at least one logit above -infinity.
bool HasSoftmax(std::span<const float> logits) {
  const bool below_infinity =
      std::all_of(logits.begin(), logits.end(), [](float v) { return v < kInfinity; });
  const bool some =
      std::any_of(logits.begin(), logits.end(), [](float v) { return v > -kInfinity; });
  return below_infinity && some;
}

// log(sum exp(v - max)), stored separately from max: their sum would lose digits of logits far from
// 0.
struct Normaliser {
  explicit Normaliser(std::span<const float> logits)
      : max(*std::max_element(logits.begin(), logits.end())) {
    double sum = 0;
    for (const float v : logits) sum += std::exp(v - max);
    log_sum = std::log(sum);
  }
  double LogProbability(float logit) const { return (logit - max) - log_sum; }
  double max, log_sum;
};

}  // namespace

std::vector<double> LogSoftmax(std::span<const float> logits) {
  LARDER_CHECK(!logits.empty());
  const Normaliser normaliser(logits);
  std::vector<double> out(logits.size());
  std::transform(logits.begin(), logits.end(), out.begin(),
                 [&](float v) { return normaliser.LogProbability(v); });
  return out;
}

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  LARDER_CHECK(p_logits.size() == q_logits.size(), "{} against {} logits", p_logits.size(),
               q_logits.size());
  if (!HasSoftmax(p_logits) || !HasSoftmax(q_logits)) return kInfinity;
  const std::vector<double> log_p = LogSoftmax(p_logits), log_q = LogSoftmax(q_logits);
  double sum = 0;
  for (size_t i = 0; i < log_p.size(); ++i) {
    const double p = std::exp(log_p[i]);
    if (p > 0) sum += p * (log_p[i] - log_q[i]);  // 0 log 0 = 0
  }
  return std::max(sum, 0.0);  // rounding may give -1e-17
}

TokenId Top1(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Divergence CompareLogits(std::span<const float> truth, std::span<const float> other, size_t vocab) {
  LARDER_CHECK(
      vocab > 0 && !truth.empty() && truth.size() == other.size() && truth.size() % vocab == 0,
      "{} and {} logits in rows of {}", truth.size(), other.size(), vocab);
  Divergence d;
  d.rows = truth.size() / vocab;
  std::vector<double> all;
  for (size_t row = 0; row < d.rows; ++row) {
    const auto p = truth.subspan(row * vocab, vocab), q = other.subspan(row * vocab, vocab);
    const double kl = KlDivergence(p, q);
    d.mean_kl += kl / static_cast<double>(d.rows);
    all.push_back(kl);
    if (kl > d.max_kl) {
      d.max_kl = kl;
      d.max_kl_row = row;
    }
    d.top1_agreement += (Top1(p) == Top1(q) ? 1.0 : 0.0) / static_cast<double>(d.rows);
    for (size_t i = 0; i < vocab; ++i) {
      const double error = p[i] == q[i] ? 0 : std::fabs(static_cast<double>(p[i]) - q[i]);
      d.max_logit_error = std::isnan(error) ? kInfinity : std::max(d.max_logit_error, error);
    }
  }
  std::ranges::sort(all);
  d.median_kl = (all[(d.rows - 1) / 2] + all[d.rows / 2]) / 2;
  return d;
}

}  // namespace larder::model::reference
