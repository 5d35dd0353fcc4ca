#include "node/tasks/generate.h"

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "node/service/signals.h"
#include "node/tasks/given_sequences.h"
#include "serving/generation/refused.h"

namespace larder::node::inline tasks {
namespace {

using serving::FinishReason;

double PerSecond(size_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

std::string ReasonText(const GeneratorStats& stats, size_t context) {
  switch (stats.reason) {
    case FinishReason::kEndOfText:
      return "end of text";
    case FinishReason::kLength:
      return "as many tokens as asked for (-n)";
    case FinishReason::kContextFull:
      return fmt::format("the context of {} tokens is full; a larger -c makes room", context);
    case FinishReason::kStopString:
      return fmt::format("stop string '{}'", stats.stop_string);
    case FinishReason::kCancelled:
      return "interrupted";
    case FinishReason::kRefused:
    case FinishReason::kFailed:
    case FinishReason::kUnavailable:
      break;
  }
  return "";
}

}  // namespace

double GeneratorStats::prompt_tokens_per_s() const {
  return PerSecond(prompt_tokens - cached_tokens, prefill_s);
}
double GeneratorStats::decode_tokens_per_s() const { return PerSecond(decode_steps, decode_s); }
double GeneratorStats::tpot_ms() const {
  return decode_steps > 0 ? 1e3 * decode_s / static_cast<double>(decode_steps) : 0;
}

std::string Describe(const GeneratorStats& stats, size_t context) {
  std::string out = fmt::format(
      "prompt     {:>6} tokens{}", stats.prompt_tokens,
      stats.cached_tokens > 0 ? fmt::format(" ({} in the KV cache)", stats.cached_tokens) : "");
  // No speed for what was not done: a prompt that was interrupted or not run, a first token without
  // a second.
  if (stats.prefill_s > 0) out += fmt::format("  {:>10.1f} tok/s", stats.prompt_tokens_per_s());
  if (stats.generated_tokens > 0) out += fmt::format("   TTFT {:.2f} ms", 1e3 * stats.ttft_s);
  out += fmt::format("\ngenerated  {:>6} tokens", stats.generated_tokens);
  if (stats.decode_steps > 0) {
    out += fmt::format("  {:>10.1f} tok/s   TPOT {:.3f} ms", stats.decode_tokens_per_s(),
                       stats.tpot_ms());
  }
  out += fmt::format("\nstopped    {}\n", ReasonText(stats, context));
  return out;
}

namespace {

// The one sequence: the prompt, and what becomes of it, for the scheduler.
class Text : public pipeline::Sequence {
 public:
  Text(std::span<const model::TokenId> prompt, const pipeline::Scheduler& scheduler,
       std::shared_ptr<const model::Tokenizer> tokenizer, serving::Sampler& sampler,
       const GenerateOptions& options, const std::function<void(std::string_view)>& write,
       GeneratorStats& stats, std::string& error, std::unique_ptr<serving::MaskedSequence> masked)
      : prompt_(prompt),
        scheduler_(scheduler),
        tokenizer_(std::move(tokenizer)),
        sampler_(sampler),
        options_(options),
        limit_(options.max_tokens < 0 ? SIZE_MAX : static_cast<size_t>(options.max_tokens)),
        write_(write),
        stats_(stats),
        error_(error),
        masked_(std::move(masked)),
        decoder_(tokenizer_, options.special, options.continues),
        stops_(options.stops) {}

  std::span<const int32_t> prompt() const override { return prompt_; }
  bool cancelled() const override { return Interrupts() > 0; }
  void Admitted(size_t reused) override { stats_.cached_tokens = reused; }

  std::optional<int32_t> Next(std::span<const float> logits) override {
    if (first_ns_ == 0) {
      EndPrefill(prompt_.size());
      if (limit_ == 0) return std::nullopt;
    } else {
      ++stats_.decode_steps;
    }
    std::span<const uint64_t> allowed;
    if (masked_ != nullptr) {
      masked_->Wait();
      error_ = masked_->failure();
      if (!error_.empty()) return std::nullopt;
      allowed = masked_->allowed();
    }
    const model::TokenId token = sampler_.Sample(logits, allowed);
    if (first_ns_ == 0) {
      first_ns_ = NowNs();
      stats_.ttft_s = static_cast<double>(first_ns_ - start_ns_) * 1e-9;
    }
    stats_.decode_s = SecondsSince(first_ns_);
    sampler_.Accept(token);
    if (tokenizer_->IsEndOfGeneration(token)) {
      stats_.reason = FinishReason::kEndOfText;
      return std::nullopt;
    }
    ++stats_.generated_tokens;
    Write(stops_.Add(decoder_.Add(token)));
    if (stops_.stopped() || stats_.generated_tokens >= limit_) return std::nullopt;
    if (masked_ != nullptr) masked_->Accept(token);
    return token;
  }

  void Ended(pipeline::SequenceEnd end, const std::string& why) override {
    Write(stops_.Add(decoder_.Finish()) + stops_.Finish());
    switch (end) {
      case pipeline::SequenceEnd::kComplete:
        break;
      case pipeline::SequenceEnd::kContextFull:
        stats_.reason = FinishReason::kContextFull;
        break;
      case pipeline::SequenceEnd::kCancelled:
        stats_.reason = FinishReason::kCancelled;
        if (stats_.prefill_s == 0) EndPrefill(TokensOfBusySlot());
        break;
      case pipeline::SequenceEnd::kRefused:
      case pipeline::SequenceEnd::kFailed:
      case pipeline::SequenceEnd::kUnavailable:
        error_ = why;
        break;
    }
    if (stops_.stopped()) {
      stats_.reason = FinishReason::kStopString;
      stats_.stop_string = options_.stops[static_cast<size_t>(stops_.matched())];
    }
  }

 private:
  size_t TokensOfBusySlot() const {
    size_t tokens = 0;
    for (const pipeline::SlotStatus& slot : scheduler_.slots()) {
      if (slot.state.load(std::memory_order_relaxed) != pipeline::SlotStatus::kIdle)
        tokens = slot.cached_tokens.load(std::memory_order_relaxed);
    }
    return tokens;
  }
  void Write(const std::string& text) {
    if (!text.empty()) write_(text);
  }
  // The first `tokens` tokens of the prompt have been run.
  void EndPrefill(size_t tokens) {
    stats_.prompt_tokens = tokens;
    stats_.prefill_s = SecondsSince(start_ns_);
    for (size_t i = stats_.cached_tokens; i < tokens; ++i) sampler_.Accept(prompt_[i]);
  }

  const std::span<const model::TokenId> prompt_;
  const pipeline::Scheduler& scheduler_;
  const std::shared_ptr<const model::Tokenizer> tokenizer_;
  serving::Sampler& sampler_;
  const GenerateOptions& options_;
  const size_t limit_;
  const std::function<void(std::string_view)>& write_;
  GeneratorStats& stats_;
  std::string& error_;
  const std::unique_ptr<serving::MaskedSequence> masked_;  // with a grammar
  model::StreamDecoder decoder_;
  serving::StopStrings stops_;
  const int64_t start_ns_ = NowNs();
  int64_t first_ns_ = 0;  // when the first token was sampled
};

}  // namespace

Generator::Generator(pipeline::Engine& engine, std::shared_ptr<const model::Tokenizer> tokenizer,
                     serving::SamplingParams params)
    : engine_(engine),
      scheduler_(std::in_place, engine, pipeline::SchedulerOptions{}),
      tokenizer_(std::move(tokenizer)),
      params_(std::move(params)),
      sampler_(params_, engine.plan().config.vocab, tokenizer_.get()) {}

void Generator::Clear() {
  scheduler_.emplace(engine_, pipeline::SchedulerOptions{});
  sampler_ = serving::Sampler(params_, engine_.plan().config.vocab, tokenizer_.get());
}

GeneratorStats Generator::Run(std::span<const model::TokenId> prompt,
                              const GenerateOptions& options,
                              const std::function<void(std::string_view)>& write) {
  serving::CheckPrompt(prompt.size(), context(), engine_.plan().config.trained_context, "prompt");
  std::string error;
  GeneratorStats stats;
  GivenSequences one;
  std::unique_ptr<serving::MaskedSequence> masked;
  if (options.grammar != nullptr) {
    if (masks_ == nullptr)
      masks_ = serving::MaskThread::Start(tokenizer_, engine_.plan().config.vocab, 1);
    masked = masks_->Open(options.grammar, {});
  }
  one.Add(std::make_unique<Text>(prompt, *scheduler_, tokenizer_, sampler_, options, write, stats,
                                 error, std::move(masked)));
  scheduler_->Run(one);
  if (!error.empty()) throw Error("{}", error);
  return stats;
}

}  // namespace larder::node::tasks
