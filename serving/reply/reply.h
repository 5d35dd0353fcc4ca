// What encoders see of an answer: its facts, the results of its choices, and the interface by which
// a Completion drives them. I/O thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serving/answer/answer_parser.h"
#include "serving/api/completion_request.h"
#include "serving/generation/generation.h"
#include "serving/reply/error_reply.h"

namespace larder::serving::inline reply {

// The fields that all parts of an answer share.
struct ReplyFacts {
  Dialect dialect = Dialect::kCompletion;
  std::string id, model;     // id: without the prefix of its kind
  uint64_t fingerprint = 0;  // the computation's identity: answers of equal ones are equal
  int64_t created = 0;       // seconds since 1970
  bool include_usage = false;
  const model::Tokenizer* tokenizer = nullptr;
  size_t prompt_tokens = 0;  // tokens of the first prompt
  int prompt_logprobs = -1;  // CompletionRequest::prompt_logprobs
  bool parallel_calls = true;
  bool stored = false;               // the server keeps it: CompletionSink::OnStored
  Json echoed = Json::object();      // CompletionRequest::echoed
  Json namespaced = Json::object();  // CompletionRequest::namespaced
  EmbeddingForm embedding;
  ShownForm form;
  bool drawn_probs = false;  // GenerationSpec::drawn_probs
  nlohmann::json settings;   // `generation_settings`, with the first choice's seed; null: not shown
  std::shared_ptr<const model::RankHead> rank_head;
};

// A part of an answer, in the order in which the model wrote them.
struct AnswerBlock {
  enum class Kind { kText, kReasoning, kCall };
  Kind kind = Kind::kText;
  std::string text;      // kCall: the JSON text of the arguments
  std::string name, id;  // kCall
};

struct ChoiceResult {
  std::vector<AnswerBlock> blocks;
  std::vector<TokenLogprobs> logprobs;
  bool with_logprobs = false;
  PromptLogprobs prompt_logprobs;  // null: not asked for
  std::vector<TokenId> tokens;     // tokens of the text; in a stream, those since the last event
  bool with_tokens = false;
  std::span<const TokenId> prompt_tokens;
  uint64_t seed = 0;
  bool called = false;          // the choice has a call
  size_t prompt = 0;            // its index: choices of one prompt share its tokens in the usage
  size_t reasoning_tokens = 0;  // the part of the stats' generated tokens that are thoughts
  GenerationEnd end;

  std::string Text(AnswerBlock::Kind kind = AnswerBlock::Kind::kText) const;  // the joined text of
                                                                              // all blocks of that
                                                                              // kind
  void Add(const AnswerDelta&);
  bool was_cut() const {  // cut by the limit of tokens
    return end.reason == FinishReason::kLength || end.reason == FinishReason::kContextFull;
  }
};

class EventSink {
 public:
  // One event of a streamed answer: the text of a JSON object. `name`: of the event, or null.
  virtual void OnEvent(const char* name, std::string object) = 0;

 protected:
  ~EventSink() = default;
};

// Turns what choices say into the answer of a dialect: Whole, or events to a sink: Begin, for each
// choice any number of Delta and an End, then Done, or Failed at any time after Begin.
class ReplyEncoder {
 public:
  virtual ~ReplyEncoder() = default;
  virtual nlohmann::json Whole(const std::vector<ChoiceResult>&) const = 0;

  virtual void Begin(size_t /*choices*/) {}
  virtual void Progress(size_t /*choice*/, const PromptProgress&) {}
  // `so_far` has the stats, and the delta already, if keeps_text(). `offset`: characters of the
  // choice's text before it.
  virtual void Delta(size_t choice, const AnswerDelta&, const std::vector<TokenLogprobs>* logprobs,
                     size_t offset, const ChoiceResult& so_far) = 0;
  virtual void End(size_t choice, const ChoiceResult&) = 0;
  virtual void Done(const std::vector<ChoiceResult>&) {}
  virtual void Failed(int status, const std::string& message) = 0;
  // Whether the text is kept even if the answer is streamed.
  virtual bool keeps_text() const { return false; }
};

std::unique_ptr<ReplyEncoder> MakeEncoder(ReplyFacts facts, EventSink& sink);
std::unique_ptr<ReplyEncoder> MakeOpenAiEncoder(ReplyFacts facts, EventSink& sink);
std::unique_ptr<ReplyEncoder> MakeNativeEncoder(ReplyFacts facts, EventSink& sink);
std::unique_ptr<ReplyEncoder> MakeResponsesEncoder(ReplyFacts facts, EventSink& sink);
std::unique_ptr<ReplyEncoder> MakeMessagesEncoder(ReplyFacts facts, EventSink& sink);
std::unique_ptr<ReplyEncoder> MakeOllamaEncoder(ReplyFacts facts, EventSink& sink);
std::unique_ptr<ReplyEncoder> MakeEmbeddingEncoder(ReplyFacts facts);

// The answer to a request that has no choices.
nlohmann::json AnswerAtOnce(const ReplyFacts&, const CompletionRequest&);

struct Usage {
  size_t prompt = 0, cached = 0, generated = 0, reasoning = 0;
};
Usage UsageOf(const std::vector<ChoiceResult>&);
std::string Rfc3339(int64_t seconds);                // since 1970: "2026-11-24T20:33:00Z"
nlohmann::json TimingsJson(const GenerationStats&);  // llama-server's
nlohmann::json ProgressJson(const PromptProgress&);  // llama-server's prompt_progress
// `timings` while a prompt is read.
nlohmann::json TimingsJson(const PromptProgress&);
// A choice in the form of llama-server's /completion, with all fields.
nlohmann::json NativeJson(const ReplyFacts&, size_t choice, std::string_view text,
                          const ChoiceResult&);
// OpenAI's list of tokens with log-probabilities; llama-server's has their ids too.
enum class TokenListForm { kOpenAi, kNative, kNativeDrawn };
nlohmann::json TokenList(const model::Tokenizer&, const std::vector<TokenLogprobs>&,
                         TokenListForm = TokenListForm::kOpenAi);
// The arguments of a call as an object; nullopt: the text is none, as that of a call that was cut
// or broken.
std::optional<Json> ArgumentsObject(const std::string& text);
// The text that replaces such a call where arguments must be an object: a client must not run it
// without them.
std::string BrokenCallText(const AnswerBlock& call);

}  // namespace larder::serving::reply
