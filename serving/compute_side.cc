#include "serving/compute_side.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace larder::serving {

TokenLogprobs LogprobsOf(std::span<const float> logits, TokenId token, size_t top) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const double log_sum = max + std::log(sum);
  const auto of = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum);
  };
  TokenLogprobs result{.token = token, .logprob = of(token), .top = {}};
  if (top == 0) return result;
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(std::min(top, ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  for (auto id = ids.begin(); id != end; ++id) result.top.emplace_back(*id, of(*id));
  return result;
}

GenerationEvent ComputeSide::NewEvent(GenerationEvent::Kind kind) const {
  GenerationEvent event;
  event.generation = generation_;
  event.kind = kind;
  event.time_ns = NowNs();
  return event;
}

void ComputeSide::Admitted(size_t reused) {
  SamplingParams params = generation_->spec.sampling;
  const bool penalties =
      params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (!penalties) params.repeat_last_n = 0;  // nobody asks what was recent
  sampler_.emplace(std::move(params), vocab_);
  const std::vector<TokenId>& prompt = generation_->spec.prompt;
  const int last_n = sampler_->params().repeat_last_n;
  const size_t recent = last_n < 0 ? prompt.size() : std::min(prompt.size(), static_cast<size_t>(last_n));
  for (size_t i = prompt.size() - recent; i < prompt.size(); ++i) sampler_->Accept(prompt[i]);
  GenerationEvent event = NewEvent(GenerationEvent::Kind::kAdmitted);
  event.reused = reused;
  sink_.Emit(std::move(event));
}

std::optional<int32_t> ComputeSide::Next(std::span<const float> logits) {
  const GenerationSpec& spec = generation_->spec;
  if (spec.max_tokens == 0) {  // only the prompt was to be run
    complete_ = FinishReason::kLength;
    return std::nullopt;
  }
  const TokenId token = sampler_->Sample(logits);
  sampler_->Accept(token);
  if (tokenizer_.IsEndOfGeneration(token)) return std::nullopt;
  GenerationEvent event = NewEvent(GenerationEvent::Kind::kToken);
  event.token = token;
  if (spec.logprobs >= 0) event.logprobs = LogprobsOf(logits, token, static_cast<size_t>(spec.logprobs));
  sink_.Emit(std::move(event));
  if (++generated_ == spec.max_tokens) {
    complete_ = FinishReason::kLength;
    return std::nullopt;
  }
  return token;
}

void ComputeSide::Ended(pipeline::SequenceEnd end, const std::string& why) {
  GenerationEvent event = NewEvent(GenerationEvent::Kind::kEnded);
  event.end = end;
  event.complete = complete_;
  event.why = why;
  sink_.Emit(std::move(event));
}

}  // namespace larder::serving
