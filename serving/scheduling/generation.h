// One text that is generated: the request and its results. A GenerationSpec goes to
// GenerationService::Start; its GenerationListener is called on the I/O thread until the end, or
// until the handle is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "base/ids.h"
#include "model/config/pooling.h"
#include "model/tokenizer/tokenizer.h"
#include "serving/admission/api_keys.h"
#include "serving/grammar/grammar.h"
#include "serving/sampling/sampler.h"

namespace larder::serving::inline scheduling {

struct GenerationSpec {
  std::vector<TokenId> prompt;
  SamplingParams sampling;  // with the seed already drawn
  int64_t max_tokens = -1;  // -1: until the text ends or the context is full
  std::vector<std::string> stops;
  int logprobs = -1;      // for each token and this many of the likeliest; -1: none
  bool continues = true;  // the text continues the prompt's, so a leading space of SPM is text
  bool special = false;   // show control tokens
  std::shared_ptr<const Grammar> grammar;  // what the text must match; null: anything
  // Not empty: the text is free up to the first of these, and must match the grammar behind it.
  std::vector<std::string> grammar_triggers;
  bool grammar_required = false;  // the text may not end before a trigger
  Tenant tenant = kEverybody;     // who asked for it
  // Not kNone: nothing is generated; GenerationEnd::embedding is the prompt's.
  model::Pooling pooling = model::Pooling::kNone;
  uint64_t salt = 0;        // hash of the request's cache_salt; 0: it has none
  bool background = false;  // of a job of files: it runs in what clients leave
                            // (Sequence::background)

  // The requests that may share a KV cache: those of a tenant with the same salt.
  uint64_t cache_group() const {
    return salt == 0 ? tenant
                     : Fnv1a({reinterpret_cast<const char*>(&tenant), sizeof tenant}, salt);
  }
};

// Natural logarithms of probabilities at temperature 1, before any sampling parameter or grammar is
// applied.
struct TokenLogprobs {
  TokenId token = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // likeliest first
};

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
  size_t reused_tokens = 0;  // those of prompt_tokens that were in the KV cache
  size_t generated_tokens = 0;
  SlotId slot;                 // where its KV cache was last; not valid: it never had one
  int64_t queue_ns = 0;        // from Start to a slot
  int64_t first_token_ns = 0;  // from Start to the first token
  int64_t total_ns = 0;        // from Start to the end
};

struct GenerationEnd {
  FinishReason reason = FinishReason::kFailed;
  std::string stop_string;       // the one that ended it
  std::string error;             // of a failure, else empty
  std::vector<float> embedding;  // [dim], with GenerationSpec::pooling; of kRank and kLast the last
                                 // token's
  GenerationStats stats;
};

class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // Text that is final: whole characters, and no start of a stop string. `logprobs` are those of
  // its tokens, if asked for. One of text and logprobs may be empty. `generated`: tokens so far.
  virtual void OnText(std::string_view text, const std::vector<TokenLogprobs>& logprobs,
                      size_t generated) = 0;
  // Asked after OnText: the text is complete, as with one of GenerationSpec::stops.
  virtual bool has_all() const { return false; }
  virtual void OnEnd(const GenerationEnd&) = 0;  // the last call
};

}  // namespace larder::serving::scheduling
