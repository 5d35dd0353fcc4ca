#include "serving/sampling/sampling_params.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace larder::serving::inline sampling {
namespace {

struct NamedStep {
  SamplerStep step;
  std::string_view name;
  std::string_view others[4];  // that llama.cpp accepts too
};
constexpr NamedStep kSteps[] = {
    {SamplerStep::kPenalties, "penalties", {}},
    {SamplerStep::kDry, "dry", {}},
    {SamplerStep::kTopNSigma, "top_n_sigma", {"top-n-sigma"}},
    {SamplerStep::kTopK, "top_k", {"top-k"}},
    {SamplerStep::kTypicalP, "typ_p", {"typical_p", "typical-p", "typical", "typ-p"}},
    {SamplerStep::kTopP, "top_p", {"top-p", "nucleus"}},
    {SamplerStep::kMinP, "min_p", {"min-p"}},
    {SamplerStep::kXtc, "xtc", {}},
    {SamplerStep::kTemperature, "temperature", {"temp"}},
};

void CheckRange(const char* name, float value, float low, float high) {
  if (!(value >= low && value <= high)) {
    throw Error("sampling: {} is {}: expected {} to {}", name, value, low, high);
  }
}

void CheckLastN(const char* name, int value) {
  if (value >= -1) return;
  throw Error("sampling: {} is {}: expected -1 (the whole sequence), 0 (off) or a number of tokens",
              name, value);
}

}  // namespace

std::vector<SamplerStep> DefaultSamplers() {
  std::vector<SamplerStep> all;
  for (const NamedStep& named : kSteps) all.push_back(named.step);
  return all;
}

SamplerStep SamplerByName(std::string_view name) {
  for (const NamedStep& named : kSteps) {
    if (name == named.name) return named.step;
    if (!name.empty() && std::ranges::find(named.others, name) != std::end(named.others))
      return named.step;
  }
  throw Error("samplers: there is no sampler '{}': expected {}", name.substr(0, 60),
              FormatSamplers(DefaultSamplers()));
}

std::string_view SamplerName(SamplerStep step) {
  return std::ranges::find(kSteps, step, &NamedStep::step)->name;
}

std::vector<SamplerStep> ParseSamplers(std::string_view list) {
  std::vector<SamplerStep> steps;
  while (!list.empty()) {
    const size_t end = std::min(list.find(';'), list.size());
    steps.push_back(SamplerByName(list.substr(0, end)));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return steps;
}

std::string FormatSamplers(std::span<const SamplerStep> steps) {
  std::string text;
  for (const SamplerStep step : steps) {
    if (!text.empty()) text += ';';
    text += SamplerName(step);
  }
  return text;
}

void Validate(const SamplingParams& p, size_t vocab) {
  // Larger values would change only the rounding, and the limit keeps float32 logits clear of
  // infinity.
  constexpr float kMost = 1e6f;
  constexpr float kBanned = -std::numeric_limits<float>::infinity();
  CheckRange("temperature", p.temperature, -kMost, kMost);
  CheckRange("top_p", p.top_p, 0, 1);
  CheckRange("min_p", p.min_p, 0, 1);
  CheckRange("typical_p", p.typical_p, 0, 1);
  CheckRange("top_n_sigma", p.top_n_sigma, -kMost, kMost);
  CheckRange("xtc_probability", p.xtc_probability, 0, 1);
  CheckRange("xtc_threshold", p.xtc_threshold, 0, 1);
  CheckRange("repeat_penalty", p.repeat_penalty, 1e-3f, 1e3f);
  CheckRange("presence_penalty", p.presence_penalty, -kMost, kMost);
  CheckRange("frequency_penalty", p.frequency_penalty, -kMost, kMost);
  CheckLastN("repeat_last_n", p.repeat_last_n);
  CheckRange("dry_multiplier", p.dry_multiplier, 0, kMost);
  CheckRange("dry_base", p.dry_base, 1, kMost);
  if (p.dry_allowed_length < 0)
    throw Error("sampling: dry_allowed_length is {}: expected a number of tokens",
                p.dry_allowed_length);
  CheckLastN("dry_penalty_last_n", p.dry_penalty_last_n);
  if (p.dry_sequence_breakers.size() > kMostDryBreakers) {
    throw Error("sampling: dry_sequence_breakers has {} texts: expected at most {}",
                p.dry_sequence_breakers.size(), kMostDryBreakers);
  }
  for (const std::string& breaker : p.dry_sequence_breakers) {
    if (breaker.empty() || breaker.size() > kMostDryBreakerBytes) {
      throw Error("sampling: dry_sequence_breakers has a text of {} bytes: expected 1 to {}",
                  breaker.size(), kMostDryBreakerBytes);
    }
  }
  CheckRange("dynatemp_range", p.dynatemp_range, 0, kMost);
  CheckRange("dynatemp_exponent", p.dynatemp_exponent, 0, kMost);
  if (p.mirostat < 0 || p.mirostat > 2)
    throw Error("sampling: mirostat is {}: expected 0 (off), 1 or 2", p.mirostat);
  CheckRange("mirostat_tau", p.mirostat_tau, 0, kMost);
  CheckRange("mirostat_eta", p.mirostat_eta, 0, kMost);
  if (p.samplers.size() > kMostSamplers)
    throw Error("sampling: samplers has {} names: expected at most {}", p.samplers.size(),
                kMostSamplers);
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || static_cast<size_t>(token) >= vocab) {
      throw Error("sampling: logit_bias names token {}: expected 0 to {}", token, vocab - 1);
    }
    if (bias != kBanned) CheckRange("logit_bias", bias, -kMost, kMost);
  }
}

}  // namespace larder::serving::sampling
