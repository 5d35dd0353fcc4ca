// The insides of Service: what the two threads know of a generation, and the events between them.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "pipeline/engine/request.h"
#include "serving/metrics/metrics.h"
#include "serving/sampling/sampler.h"
#include "serving/scheduling/generation.h"

namespace larder::serving {

// Made by the I/O thread; the compute thread reads `spec` and `cancelled` only.
struct Generation : std::enable_shared_from_this<Generation> {
  Generation(GenerationSpec asked, std::shared_ptr<const model::Tokenizer> tokenizer, Protocol from,
             GenerationListener* to)
      : spec(std::move(asked)),
        protocol(from),
        listener(to),
        start_ns(NowNs()),
        decoder(std::move(tokenizer), spec.special, spec.continues),
        stops(spec.stops) {
    stats.prompt_tokens = spec.prompt.size();
  }

  const GenerationSpec spec;
  std::atomic<bool> cancelled{false};  // relaxed: nothing is published by it

  // Of the I/O thread, which writes here for every token; what the compute thread reads in every step is not
  // on these cache lines.
  alignas(kFalseSharingBytes) const Protocol protocol;
  GenerationListener* listener;  // null: nobody wants to know any more
  const int64_t start_ns;
  int64_t last_ns = 0;  // of the last token, or the end
  bool admitted = false, finished = false;
  GenerationStats stats;
  model::StreamDecoder decoder;
  StopStrings stops;
  std::vector<TokenLogprobs> held_logprobs;  // of tokens whose text is held back
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored \
    "-Winvalid-offsetof"  // what both compilers give for a class without virtual bases
static_assert(offsetof(Generation, protocol) / kFalseSharingBytes >
              offsetof(Generation, cancelled) / kFalseSharingBytes);
#pragma GCC diagnostic pop

// From the compute thread.
struct GenerationEvent {
  enum class Kind { kAdmitted, kToken, kEnded };
  std::shared_ptr<Generation> generation;
  Kind kind = Kind::kToken;
  int64_t time_ns = 0;
  size_t reused = 0;                                           // kAdmitted
  TokenId token = 0;                                           // kToken
  TokenLogprobs logprobs;                                      // kToken
  pipeline::SequenceEnd end = pipeline::SequenceEnd::kFailed;  // kEnded
  FinishReason complete = FinishReason::kEndOfText;            // kEnded: why it had enough
  std::string why;                                             // kEnded
};

// The compute thread's half of a generation: samples, and tells.
class ComputeSide : public pipeline::Sequence {
 public:
  class Sink {
   public:
    virtual void Emit(GenerationEvent) = 0;

   protected:
    ~Sink() = default;
  };

  ComputeSide(std::shared_ptr<Generation> generation, const model::Tokenizer& tokenizer, size_t vocab,
              Sink& sink)
      : generation_(std::move(generation)), tokenizer_(tokenizer), vocab_(vocab), sink_(sink) {}

  std::span<const int32_t> prompt() const override { return generation_->spec.prompt; }
  uint64_t tenant() const override { return generation_->spec.tenant; }
  bool cancelled() const override { return generation_->cancelled.load(std::memory_order_relaxed); }
  void Admitted(size_t reused) override;
  std::optional<int32_t> Next(std::span<const float> logits) override;
  void Ended(pipeline::SequenceEnd, const std::string& why) override;

 private:
  GenerationEvent NewEvent(GenerationEvent::Kind) const;

  std::shared_ptr<Generation> generation_;
  const model::Tokenizer& tokenizer_;
  const size_t vocab_;
  Sink& sink_;
  std::optional<Sampler> sampler_;  // from admission on: waiting requests hold no scratch memory
  int64_t generated_ = 0;
  FinishReason complete_ = FinishReason::kEndOfText;
  std::string refused_;  // the client's own wishes leave no token to choose
};

// Logarithms of the probability of `token` and of the `top` likeliest.
TokenLogprobs LogprobsOf(std::span<const float> logits, TokenId token, size_t top);

}  // namespace larder::serving
