// One text that is generated: the request and its results. A GenerationSpec goes to
// GenerationService::Start; its GenerationListener is called on the I/O thread until the end, or
// until the handle is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "base/ids.h"
#include "model/config/pooling.h"
#include "model/tokenizer/tokenizer.h"
#include "serving/admission/api_keys.h"
#include "serving/generation/thought_budget.h"
#include "serving/grammar/grammar.h"
#include "serving/sampling/sampler.h"

namespace larder::serving::inline generation {

struct GenerationSpec {
  std::vector<TokenId> prompt;
  SamplingParams sampling;  // with the seed already drawn
  int64_t max_tokens = -1;  // -1: until the text ends or the context is full
  std::vector<std::string> stops;
  int logprobs = -1;         // for each token and this many of the likeliest; -1: none
  int prompt_logprobs = -1;  // the same for the prompt's tokens: GenerationListener::OnPrompt
  // logprobs also has tokens without text: control tokens, and the one that ends the text.
  bool every_logprob = false;
  bool continues = true;  // the text continues the prompt's, so a leading space of SPM is text
  bool special = false;   // show all control tokens; otherwise none except these
  model::StreamDecoder::Exceptions text_exceptions;
  std::shared_ptr<const Grammar> grammar;  // what the text must match; null: anything
  // Not empty: the text is free up to the first of these, and must match the grammar after it.
  std::vector<std::string> grammar_triggers;
  bool grammar_required = false;  // the text may not end before a trigger
  ThoughtLimit thoughts;
  Tenant tenant = kEverybody;  // who asked for it
  // Not kNone: no text is generated; GenerationEnd::embedding is that of the prompt.
  model::Pooling pooling = model::Pooling::kNone;
  // It waits for this slot (a number modulo the slots that exist) and starts from what the slot
  // holds.
  std::optional<SlotId> slot;
  // It ends this many ms after its first token, once it has a line end; -1: no limit.
  int64_t most_predict_ms = -1;
  size_t least_indent = 0;      // blanks; it ends before a line behind its first that has fewer
  bool drawn_probs = false;     // logprobs are those of the draw: of the tokens that the sampling
                                // steps have kept, at the last temperature
  bool reports_prompt = false;  // GenerationListener::OnProgress is called
  uint64_t salt = 0;            // hash of the request's cache_salt; 0: it has none
  bool background = false;      // it belongs to a batch job and runs in what clients leave
                                // (Sequence::background)

  // The requests that may share a KV cache: those of a tenant with the same salt.
  uint64_t cache_group() const {
    const auto number = static_cast<uint64_t>(tenant);
    return salt == 0 ? number
                     : Fnv1a({reinterpret_cast<const char*>(&number), sizeof number}, salt);
  }
};

// Natural logarithms of probabilities at temperature 1, before any sampling parameter or grammar is
// applied; with GenerationSpec::drawn_probs the probabilities that the token was drawn by, without
// those of 0.
struct TokenLogprobs {
  TokenId token = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // likeliest first
  uint32_t rank = 0;                           // among all tokens, 1: the likeliest; 0: not known
};

// The log-probabilities of a prompt's tokens, each given those before it. The first token has none:
// its logprob is NaN.
using PromptLogprobs = std::shared_ptr<const std::vector<TokenLogprobs>>;

// Why a text ended, for clients and for `larder run`. More than pipeline::SequenceEnd, which knows
// slots but not texts.
enum class FinishReason {
  kEndOfText,
  kStopString,
  kLength,
  kContextFull,
  kCancelled,
  kRefused,
  kFailed,
  kUnavailable  // a socket of the cluster is lost
};
// Whether the text ended for another reason than its own end or the client's wish;
// GenerationEnd::error says which.
constexpr bool IsFailure(FinishReason reason) {
  return reason == FinishReason::kRefused || reason == FinishReason::kFailed ||
         reason == FinishReason::kUnavailable;
}
// A failure as an HTTP status.
constexpr int StatusOf(FinishReason failure) {
  return failure == FinishReason::kRefused       ? 400
         : failure == FinishReason::kUnavailable ? 503
                                                 : 500;
}

struct GenerationStats {
  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;  // the part of prompt_tokens that was in the KV cache
  size_t generated_tokens = 0;
  SlotId slot;                 // where its KV cache was last; not valid: it never had one
  bool has_line_end = false;   // the generated text has a line end
  int64_t prompt_ns = 0;       // from a slot to the last of the prompt's tokens that is computed
  int64_t queue_ns = 0;        // from Start to a slot
  int64_t first_token_ns = 0;  // from Start to the first token
  int64_t total_ns = 0;        // from Start to the last token so far, or the end
};

struct GenerationEnd {
  FinishReason reason = FinishReason::kFailed;
  std::string stop_string;       // the stop string that ended it
  std::string error;             // the reason of a failure, else empty
  std::vector<float> embedding;  // [dim], with GenerationSpec::pooling; for kRank and kLast that of
                                 // the last token
  GenerationStats stats;
};

// The next piece of a text. Valid during the call.
struct GeneratedText {
  std::string_view text;  // final: whole characters, and no start of a stop string; may be empty
  std::span<const TokenId> tokens;          // those since the last piece
  std::span<const TokenLogprobs> logprobs;  // the log-probabilities of these tokens, if asked for
  const GenerationStats& stats;             // so far
};

// How much of a prompt is in the KV cache.
struct PromptProgress {
  size_t total = 0, cached = 0;  // tokens: all, and those that were there at the start
  size_t processed = 0;          // with those
  const GenerationStats& stats;  // so far
};

class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // Before the first OnText, if asked for.
  virtual void OnPrompt(const PromptLogprobs&) {}
  virtual void OnText(const GeneratedText&) = 0;
  // With GenerationSpec::reports_prompt, before any text: first with what was cached, then after
  // each micro-batch.
  virtual void OnProgress(const PromptProgress&) {}
  // Asked after OnText: true ends the text, as a stop string (GenerationSpec::stops) does.
  virtual bool has_all() const { return false; }
  virtual void OnEnd(const GenerationEnd&) = 0;  // the last call
};

}  // namespace larder::serving::generation
