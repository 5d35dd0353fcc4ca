// The implementation of GenerationService: each thread's state of a generation, and the events
// between the threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "pipeline/sequences/request.h"
#include "serving/constraint/mask_thread.h"
#include "serving/generation/generation.h"
#include "serving/metrics/metrics.h"
#include "serving/sampling/sampler.h"

namespace larder::serving::inline generation {

// Made by the I/O thread; the compute thread reads only `spec` and `cancelled`.
struct Generation : std::enable_shared_from_this<Generation> {
  Generation(GenerationSpec asked, std::shared_ptr<const model::Tokenizer> tokenizer, Protocol from,
             GenerationListener* to)
      : spec(std::move(asked)),
        protocol(from),
        listener(to),
        start_ns(NowNs()),
        decoder(std::move(tokenizer), spec.special, spec.continues, spec.text_exceptions),
        indent(spec.least_indent),
        stops(spec.stops) {
    stats.prompt_tokens = spec.prompt.size();
  }

  const GenerationSpec spec;
  std::atomic<bool> cancelled{false};  // relaxed: it publishes no other data

  // Only the I/O thread uses what follows, and writes it for every token: not on the cache lines of
  // what the compute thread reads in every step.
  alignas(kFalseSharingBytes) const Protocol protocol;
  GenerationListener* listener;  // null: the handle was dropped
  const int64_t start_ns;
  int64_t last_ns = 0;  // when the last token, or the end, came
  bool admitted = false, finished = false;
  GenerationStats stats;
  model::StreamDecoder decoder;
  IndentLimit indent;
  StopStrings stops;
  std::optional<size_t> progress;  // the last that was told
  // The tokens whose text is held back.
  std::vector<TokenId> held_tokens;
  std::vector<TokenLogprobs> held_logprobs;
};

static_assert(Apart(offsetof(Generation, cancelled), offsetof(Generation, protocol)));

// Sent by the compute thread to the I/O thread.
struct GenerationEvent {
  enum class Kind { kAdmitted, kProgress, kPrompt, kToken, kEndToken, kEnded };
  std::shared_ptr<Generation> generation;
  Kind kind = Kind::kToken;
  SlotId slot;  // where it is, or was last
  int64_t time_ns = 0;
  size_t reused = 0;                                           // kAdmitted
  size_t computed = 0;                                         // kProgress
  PromptLogprobs prompt;                                       // kPrompt
  TokenId token = 0;                                           // kToken
  TokenLogprobs logprobs;                                      // kToken, kEndToken
  pipeline::SequenceEnd end = pipeline::SequenceEnd::kFailed;  // kEnded
  FinishReason complete = FinishReason::kEndOfText;            // kEnded: why the text is complete
  std::string why;                                             // kEnded
  std::vector<float> embedding;                                // kEnded
};

// The compute thread's half of a generation: it samples the tokens and emits the events.
class ComputeSide : public pipeline::Sequence {
 public:
  class Sink {
   public:
    virtual void Emit(GenerationEvent) = 0;

   protected:
    ~Sink() = default;
  };

  // masks: null: no generation has a grammar.
  ComputeSide(std::shared_ptr<Generation> generation, const model::Tokenizer& tokenizer,
              size_t vocab, Sink& sink, std::shared_ptr<MaskThread> masks = nullptr)
      : generation_(std::move(generation)),
        tokenizer_(tokenizer),
        vocab_(vocab),
        sink_(sink),
        masks_(std::move(masks)),
        thoughts_(generation_->spec.thoughts, tokenizer) {}

  std::span<const int32_t> prompt() const override { return generation_->spec.prompt; }
  uint64_t tenant() const override { return generation_->spec.cache_group(); }
  bool background() const override { return generation_->spec.background; }
  bool cancelled() const override { return generation_->cancelled.load(std::memory_order_relaxed); }
  void Admitted(size_t reused) override;
  void Computed(size_t tokens) override;
  std::optional<SlotId> slot() const override { return generation_->spec.slot; }
  void InSlot(SlotId slot) override { slot_ = slot; }
  bool ready(uint64_t most_ns) override {
    return made_ || masked_ == nullptr || masked_->WaitFor(most_ns);
  }
  std::optional<int32_t> Next(std::span<const float> logits) override;
  void Prepare(std::span<const float> logits) override;
  void PromptLogits(size_t position, std::span<const float> logits) override;
  pipeline::Wanted wanted() const override;
  void Hidden(size_t position, std::span<const float> state) override;
  void Ended(pipeline::SequenceEnd, const std::string& why) override;

 private:
  GenerationEvent NewEvent(GenerationEvent::Kind) const;
  std::optional<TokenId> Choose(std::span<const float> logits);
  void Make(std::span<const float> logits);

  std::shared_ptr<Generation> generation_;
  const model::Tokenizer& tokenizer_;
  const size_t vocab_;
  Sink& sink_;
  const std::shared_ptr<MaskThread> masks_;
  std::unique_ptr<MaskedSequence> masked_;  // if there is a grammar; opened at admission, so that
                                            // its first mask is made during the prompt
  std::optional<Sampler> sampler_;  // made at admission, so that waiting requests hold no scratch
                                    // memory
  ThoughtBudget thoughts_;
  // The next token and its log-probabilities, chosen by Prepare or Next.
  struct Made {
    std::optional<TokenId> token;
    TokenLogprobs logprobs;
  };
  std::optional<Made> made_;
  std::shared_ptr<std::vector<TokenLogprobs>> prompt_;  // made at admission; null once passed on
  SlotId slot_;
  int64_t generated_ = 0;
  FinishReason complete_ = FinishReason::kEndOfText;
  std::vector<float> embedding_;  // the sum of the hidden states so far, or the only one
  std::string refused_;           // why the client's own parameters leave no token to choose
};

}  // namespace larder::serving::generation
