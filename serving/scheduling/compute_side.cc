#include "serving/scheduling/compute_side.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace larder::serving::inline scheduling {
namespace {

constexpr size_t kLanes = 16;  // the compiler turns lanes side by side into vectors

// e^-below for below >= 0, with a relative error of some 2e-7: 2^n * (polynomial of degree 6 in r),
// |r| <= ln2/2. It has no branch and no libm, so it vectorises; beyond 87 the result is negligible.
// (The bits of positive floats compare like the floats. A comparison of floats may trap, so the
// compiler makes a branch.)
float ExpOfMinus(float below) {
  const float x =
      -std::bit_cast<float>(std::min(std::bit_cast<int32_t>(below), std::bit_cast<int32_t>(87.0f)));
  constexpr float kRound = 0x1.8p23f, kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;
  const float shifted = x * 0x1.715476p+0f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float sum = 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) + 127;  // its low bits are n
  return sum * std::bit_cast<float>(exponent << 23);
}

float MaxOf(std::span<const float> logits) {
  std::array<float, kLanes> most;
  most.fill(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
  }
  for (; i < logits.size(); ++i) most[0] = std::max(most[0], logits[i]);
  return *std::max_element(most.begin(), most.end());
}

double SumOfExp(std::span<const float> logits, float max) {
  constexpr size_t kBlock = 512;
  float terms[kBlock];
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - begin);
    for (size_t i = 0; i < n; ++i)
      terms[i] = ExpOfMinus(max - logits[begin + i]);  // this loop is vectorised
    for (size_t i = 0; i < n; ++i) sum += static_cast<double>(terms[i]);
  }
  return sum;
}

// The likeliest tokens with their logits, best first; of equals the lower id. One pass: soon almost
// no logit beats the worst one that is kept. The only allocation is the result's.
std::vector<std::pair<TokenId, float>> Likeliest(std::span<const float> logits, size_t count) {
  count = std::min(count, logits.size());
  std::vector<std::pair<TokenId, float>> best;
  best.reserve(count);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (best.size() == count && !(logits[i] > best.back().second)) continue;
    if (best.size() == count) best.pop_back();
    const auto at =
        std::upper_bound(best.begin(), best.end(), logits[i],
                         [](float value, const auto& kept) { return value > kept.second; });
    best.emplace(at, static_cast<TokenId>(i), logits[i]);
  }
  return best;
}

}  // namespace

// It runs on the compute thread, so other sequences wait for it: with libm and a partial sort,
// 32,000 logits took 0.3 ms.
TokenLogprobs LogprobsOf(std::span<const float> logits, TokenId token, size_t top) {
  const float max = MaxOf(logits);
  const double log_sum = static_cast<double>(max) + std::log(SumOfExp(logits, max));
  const auto of = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
  };
  TokenLogprobs result{
      .token = token, .logprob = of(logits[static_cast<size_t>(token)]), .top = {}};
  if (top == 0) return result;
  result.top = Likeliest(logits, top);
  for (auto& [id, value] : result.top) value = of(value);
  return result;
}

static TokenLogprobs DrawnProbsOf(const Sampler& sampler, TokenId token, size_t top) {
  std::vector<std::pair<TokenId, double>> likeliest;
  const double own = sampler.Drawn(token, top, likeliest);
  TokenLogprobs result{.token = token, .logprob = static_cast<float>(std::log(own)), .top = {}};
  for (const auto& [id, probability] : likeliest)
    result.top.emplace_back(id, static_cast<float>(std::log(probability)));
  return result;
}

GenerationEvent ComputeSide::NewEvent(GenerationEvent::Kind kind) const {
  GenerationEvent event;
  event.generation = generation_;
  event.kind = kind;
  event.slot = slot_;
  event.time_ns = NowNs();
  return event;
}

void ComputeSide::Admitted(size_t reused) {
  embedding_.clear();
  if (wanted() == pipeline::Wanted::kNextToken) {
    sampler_.emplace(generation_->spec.sampling, vocab_, &tokenizer_);
    const std::vector<TokenId>& prompt = generation_->spec.prompt;
    const size_t recent = std::min(prompt.size(), sampler_->history());
    for (size_t i = prompt.size() - recent; i < prompt.size(); ++i) sampler_->Accept(prompt[i]);
  }
  // A sequence that is admitted again has chosen no token yet: its mask is still the first one.
  if (generation_->spec.grammar != nullptr && masked_ == nullptr) {
    LARDER_CHECK(masks_ != nullptr);
    masked_ = masks_->Open(generation_->spec.grammar, generation_->spec.grammar_triggers,
                           generation_->spec.grammar_required);
  }
  GenerationEvent event = NewEvent(GenerationEvent::Kind::kAdmitted);
  event.reused = reused;
  sink_.Emit(std::move(event));
}

void ComputeSide::Computed(size_t tokens) {
  if (!generation_->spec.reports_prompt) return;
  GenerationEvent event = NewEvent(GenerationEvent::Kind::kProgress);
  event.computed = tokens;
  sink_.Emit(std::move(event));
}

// nullopt: there is none to choose, since the text is complete or refused_ says why.
std::optional<TokenId> ComputeSide::Choose(std::span<const float> logits) {
  std::span<const uint64_t> allowed;
  if (masked_ != nullptr) {
    masked_->Wait();  // not at all: it is ready
    refused_ = masked_->failure();
    if (!refused_.empty()) return std::nullopt;
    allowed = masked_->allowed();
  }
  if (const std::optional<TokenId> wanted = thoughts_.Next()) {
    const auto at = static_cast<size_t>(*wanted);
    if (allowed.empty() || (allowed[at / 64] >> at % 64 & 1) != 0) {
      sampler_->Accept(*wanted);
      return wanted;
    }
  }
  try {
    const TokenId token = sampler_->Sample(logits, allowed);
    sampler_->Accept(token);
    return token;
  } catch (const EveryTokenIsBanned& error) {
    // The grammar's text is complete, and the end was all that could follow; but it is banned, or
    // there is none.
    if (masked_ == nullptr || !masked_->only_the_end()) refused_ = error.what();
    return std::nullopt;
  }
}

void ComputeSide::Make(std::span<const float> logits) {
  const GenerationSpec& spec = generation_->spec;
  Made made{.token = Choose(logits), .logprobs = {}};
  if (made.token && spec.logprobs >= 0) {
    const auto top = static_cast<size_t>(spec.logprobs);
    made.logprobs = spec.drawn_probs ? DrawnProbsOf(*sampler_, *made.token, top)
                                     : LogprobsOf(logits, *made.token, top);
  }
  made_ = std::move(made);
}

void ComputeSide::Prepare(std::span<const float> logits) {
  if (generation_->spec.max_tokens == 0) return;
  try {
    Make(logits);
  } catch (const Error&) {  // of broken logits: Next finds the same, and may say so
  }
}

std::optional<int32_t> ComputeSide::Next(std::span<const float> logits) {
  const GenerationSpec& spec = generation_->spec;
  if (spec.max_tokens == 0) {  // the request was to run the prompt only
    complete_ = FinishReason::kLength;
    return std::nullopt;
  }
  if (!made_) Make(logits);
  Made made = *std::exchange(made_, std::nullopt);
  if (!made.token || tokenizer_.IsEndOfGeneration(*made.token)) return std::nullopt;
  const TokenId token = *made.token;
  thoughts_.Accept(token);
  GenerationEvent event = NewEvent(GenerationEvent::Kind::kToken);
  event.token = token;
  event.logprobs = std::move(made.logprobs);
  sink_.Emit(std::move(event));
  if (++generated_ == spec.max_tokens) {
    complete_ = FinishReason::kLength;
    return std::nullopt;
  }
  // The next mask is computed beside the model's step.
  if (masked_ != nullptr) masked_->Accept(token);
  return token;
}

pipeline::Wanted ComputeSide::wanted() const {
  switch (generation_->spec.pooling) {
    case model::Pooling::kNone:
      return pipeline::Wanted::kNextToken;
    case model::Pooling::kMean:
    case model::Pooling::kCls:
      return pipeline::Wanted::kHiddenOfAll;
    case model::Pooling::kLast:
    case model::Pooling::kRank:
      break;
  }
  return pipeline::Wanted::kHiddenOfLast;
}

// The mean is a sum in ascending positions, so it does not depend on micro-batches.
void ComputeSide::Hidden(size_t position, std::span<const float> state) {
  const GenerationSpec& spec = generation_->spec;
  if (embedding_.empty()) {
    embedding_.assign(state.begin(), state.end());
  } else if (spec.pooling == model::Pooling::kMean) {
    for (size_t i = 0; i < state.size(); ++i) embedding_[i] += state[i];
  }
  if (spec.pooling != model::Pooling::kMean || position + 1 < spec.prompt.size()) return;
  for (float& value : embedding_) value /= static_cast<float>(spec.prompt.size());
}

void ComputeSide::Ended(pipeline::SequenceEnd end, const std::string& why) {
  GenerationEvent event = NewEvent(GenerationEvent::Kind::kEnded);
  event.end = end;
  event.complete = complete_;
  event.why = why;
  event.embedding = std::move(embedding_);
  if (!refused_.empty() && end == pipeline::SequenceEnd::kComplete) {
    event.end = pipeline::SequenceEnd::kRefused;
    event.why = refused_;
  }
  sink_.Emit(std::move(event));
}

}  // namespace larder::serving::scheduling
