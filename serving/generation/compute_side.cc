#include "serving/generation/compute_side.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "serving/generation/logprobs.h"

namespace larder::serving::inline generation {

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
  if (generation_->spec.pooling == model::Pooling::kNone) {
    sampler_.emplace(generation_->spec.sampling, vocab_, &tokenizer_);
    const std::vector<TokenId>& prompt = generation_->spec.prompt;
    const size_t recent = std::min(prompt.size(), sampler_->history());
    for (size_t i = prompt.size() - recent; i < prompt.size(); ++i) sampler_->Accept(prompt[i]);
  }
  if (wanted() == pipeline::Wanted::kPromptLogits && prompt_ == nullptr) {
    const std::vector<TokenId>& prompt = generation_->spec.prompt;
    prompt_ = std::make_shared<std::vector<TokenLogprobs>>(prompt.size());
    prompt_->front().token = prompt.front();
    prompt_->front().logprob = std::numeric_limits<float>::quiet_NaN();
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
  } catch (const Error&) {  // the logits are broken: Next finds the same, and may say so
  }
}

void ComputeSide::PromptLogits(size_t position, std::span<const float> logits) {
  const GenerationSpec& spec = generation_->spec;
  const TokenId token = spec.prompt[position + 1];
  TokenLogprobs& of = (*prompt_)[position + 1];
  of = LogprobsOf(logits, token, static_cast<size_t>(spec.prompt_logprobs));
  of.rank = RankOf(logits, token);
}

std::optional<int32_t> ComputeSide::Next(std::span<const float> logits) {
  const GenerationSpec& spec = generation_->spec;
  if (prompt_ != nullptr) {
    GenerationEvent event = NewEvent(GenerationEvent::Kind::kPrompt);
    event.prompt = std::exchange(prompt_, nullptr);
    sink_.Emit(std::move(event));
  }
  if (spec.max_tokens == 0) {  // the request was to run the prompt only
    complete_ = FinishReason::kLength;
    return std::nullopt;
  }
  if (!made_) Make(logits);
  Made made = *std::exchange(made_, std::nullopt);
  if (!made.token) return std::nullopt;
  if (tokenizer_.IsEndOfGeneration(*made.token)) {
    if (!spec.every_logprob) return std::nullopt;
    GenerationEvent event = NewEvent(GenerationEvent::Kind::kEndToken);
    event.logprobs = std::move(made.logprobs);
    sink_.Emit(std::move(event));
    return std::nullopt;
  }
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
      return generation_->spec.prompt_logprobs < 0 ? pipeline::Wanted::kNextToken
                                                   : pipeline::Wanted::kPromptLogits;
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

}  // namespace larder::serving::generation
