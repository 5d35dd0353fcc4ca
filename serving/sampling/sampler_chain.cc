// Sampler, part two: the steps in the order that the parameters name.
#include <algorithm>
#include <limits>

#include "serving/sampling/sampler.h"

namespace larder::serving::inline sampling {

void Sampler::Narrow() {
  if (narrowed_) return;
  candidates_.Collect(logits_, 0);
  narrowed_ = true;
}

void Sampler::PenalizeRepetitions() {
  if (!dry_) return;
  for (const auto& [token, penalty] : dry_->Find())
    ChangeLogit(token, [by = penalty](float logit) { return logit - by; });
}

void Sampler::ApplyTemperature() {
  const double temperature = params_.temperature, range = params_.dynatemp_range;
  greedy_ = temperature <= 0 && range <= 0;
  if (range > 0) {
    candidates_.DynamicTemperature(std::max(0.0, temperature - range), temperature + range,
                                   params_.dynatemp_exponent);
  } else {
    candidates_.Temperature(temperature);
  }
}

void Sampler::Apply(SamplerStep step) {
  const SamplingParams& p = params_;
  switch (step) {
    case SamplerStep::kPenalties:
      Penalize();
      return;
    case SamplerStep::kDry:
      PenalizeRepetitions();
      return;
    case SamplerStep::kTopNSigma:
      if (p.top_n_sigma <= 0) return;
      if (narrowed_) return candidates_.TopNSigma(p.top_n_sigma);
      candidates_.CollectTopNSigma(logits_, p.top_n_sigma);
      narrowed_ = true;
      return;
    case SamplerStep::kTopK:
      if (p.top_k <= 0) return;
      if (narrowed_) return candidates_.TopK(static_cast<size_t>(p.top_k));
      candidates_.Collect(logits_, p.top_k);
      candidates_.SortById();
      narrowed_ = true;
      return;
    case SamplerStep::kTypicalP:
      if (p.typical_p >= 1) return;
      Narrow();
      return candidates_.TypicalP(p.typical_p, p.min_keep);
    case SamplerStep::kTopP:
      if (p.top_p >= 1) return;
      Narrow();
      return candidates_.TopP(p.top_p, p.min_keep);
    case SamplerStep::kMinP:
      if (p.min_p <= 0) return;
      Narrow();
      return candidates_.MinP(p.min_p, p.min_keep);
    case SamplerStep::kXtc:
      if (p.xtc_probability <= 0) return;
      Narrow();
      if (NextUniform() < p.xtc_probability) candidates_.Xtc(p.xtc_threshold, p.min_keep);
      return;
    case SamplerStep::kTemperature:
      Narrow();
      return ApplyTemperature();
  }
}

TokenId Sampler::SampleByChain() {
  narrowed_ = greedy_ = false;
  if (MaxOf(logits_) == -std::numeric_limits<float>::infinity()) ThrowNoToken();
  candidates_.Begin();
  for (const SamplerStep step : params_.samplers) {
    const bool changes_logits_only = step == SamplerStep::kPenalties || step == SamplerStep::kDry;
    if (params_.mirostat == 0 || changes_logits_only) Apply(step);
  }
  Narrow();
  if (params_.mirostat != 0) ApplyTemperature();
  if (greedy_) return candidates_.best();
  if (params_.mirostat == 0) return candidates_.DrawFromChain(NextUniform());
  if (params_.mirostat == 1) {
    candidates_.Mirostat1(mirostat_mu_, logits_.size());
  } else {
    candidates_.Mirostat2(mirostat_mu_);
  }
  double surprise_bits = 0;
  const TokenId token = candidates_.DrawFromChain(NextUniform(), &surprise_bits);
  mirostat_mu_ -= static_cast<double>(params_.mirostat_eta) *
                  (surprise_bits - static_cast<double>(params_.mirostat_tau));
  return token;
}

}  // namespace larder::serving::sampling
