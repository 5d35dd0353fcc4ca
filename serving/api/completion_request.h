// What a client asks for: the canonical form of a request, whatever dialect it came in, and the
// GenerationSpecs that it becomes, one per choice. Clients' bytes are not trusted: the outcome is
// always a request or a Refused. No state; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/chat/chat_template.h"
#include "model/config/pooling.h"
#include "serving/answer/answer_parser.h"
#include "serving/api/dialect.h"
#include "serving/fields/json_fields.h"
#include "serving/generation/generation.h"
#include "serving/generation/generation_service.h"
#include "serving/history/turn.h"

namespace larder::serving::inline api {

// The defaults of fields that a request leaves out, and the limits that it is checked against.
struct CompletionDefaults {
  std::shared_ptr<const model::Tokenizer> tokenizer;  // null: requests are only checked
  std::shared_ptr<const model::ChatTemplate> chat_template;
  std::string effort;            // reasoning_effort if a request does not say; empty: none
  Json kwargs = Json::object();  // further variables of the template, which a request may change
  bool reasoning = true;         // whether a model that can think does if a request does not say
  bool special = false;          // control tokens are shown in texts
  bool split_reasoning = true;   // CompletionRequest::split_reasoning if a request does not say
  int64_t thought_tokens = -1;   // the limit on an answer's thoughts; -1: none
  std::string thought_message;   // what the model is told when they are spent, before the thought
                                 // ends
  AnswerFormat answer_format = AnswerFormat::kGeneric;  // how the model writes thoughts and calls
  SamplingParams sampling;
  std::optional<uint64_t> seed;  // nullopt: each request draws its own
  int64_t max_tokens = -1;
  size_t vocab = 0, context = 0;
  size_t model_context = 0;                   // the context that the model was trained with; 0: not
                                              // known
  size_t longest_token_bytes = SIZE_MAX / 2;  // a text of more than context times this cannot fit
  std::string model;                          // the name in /v1/models
  std::string architecture;                   // "llama"
  uint64_t parameters = 0;                    // weights
  uint64_t file_bytes = 0;                    // size of the model's file
  uint64_t fingerprint = 0;          // the computation's identity (pipeline/plan/identity.h)
  std::vector<std::string> aliases;  // other names that are accepted for it; the last is its path
  std::vector<std::string> said_aliases, tags;     // in /v1/models
  bool verbose = false;                            // ShownForm::verbose if a request does not say
  bool strict_model = false;                       // a request that names another model is refused
  bool strict_fields = false;                      // a request with fields that would be ignored is
                                                   // refused
  size_t dim = 0;                                  // elements of an embedding; 0: not known
  model::Pooling pooling = model::Pooling::kNone;  // kNone: embeddings are refused
  std::shared_ptr<const model::RankHead> rank_head;  // null: relevance is refused
  std::string rank_template;                         // with {query} and {document}; empty: none
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct ToolUse {
  enum class Kind { kAuto, kNone, kRequired };
  Kind kind = Kind::kAuto;
  std::vector<std::string> names;  // the only tools that may be called; empty: all
  bool parallel = true;            // several calls in one answer
};

// How vectors are written.
struct EmbeddingForm {
  size_t dimensions = 0;               // only this many elements, from the first; 0: all
  bool base64 = false;                 // base64 of little-endian float32, instead of a list of
                                       // numbers
  bool normalize = true;               // normalise to length 1
  size_t top_n = SIZE_MAX;             // the most relevant documents
  std::vector<std::string> documents;  // documents to be returned with their relevance; empty: none
                                       // are
  bool listed = false;                 // the relevance as a list, as text-embeddings-inference's
};

// What llama-server's clients want to see besides the text.
struct ShownForm {
  bool tokens = false;   // the ids of a whole answer's text; a stream always has them
  bool timings = false;  // in each event
  bool verbose = false;  // a chat's answer in the form of /completion too
  // Leaves out prompt, settings and a stream's tokens: for the text stream.
  bool brief = false;
  std::vector<std::string> fields;  // only these of the last object, "a/b" is b of a; empty: all
};

// Requests of Ollama's API that ask the model for nothing.
enum class AtOnce {
  kNo,
  kLoad,       // a request without a prompt loads the model, which is always loaded
  kUnload,     // a request to keep the model for no time unloads it; Larder keeps it
  kNoVectors,  // a request for vectors of no texts
};

struct CompletionRequest {
  Dialect dialect = Dialect::kCompletion;
  std::vector<Prompt> prompts;
  const char* prompts_field = "prompt";  // what the client calls them
  bool prompts_listed = false;           // they are items of an array
  // Instead of prompts: a conversation in the form of OpenAI's chat completions. Contents are
  // strings or null, tool_calls have an id and a text of arguments.
  Json messages;  // array; null: there are prompts
  Json tools;     // array of {"type":"function","function":{...}}; null: none
  // Tools in namespaces, by the name that the model sees: {"namespace","name"}.
  Json namespaced = Json::object();
  Json kwargs = Json::object();  // further variables of the template
  ToolUse tool_choice;
  Json schema;            // the schema of the answer's text if it must be JSON; null if it need not
  std::string form_gbnf;  // what else that text must match, in GBNF; empty: nothing
  bool add_generation_prompt = true;
  bool shorten = false;           // if it is longer than the context (shorten.h)
  bool continue_last = false;     // the last message is the assistant's and is to be continued
  bool continue_thought = false;  // that message is a thought without an answer, and the thought is
                                  // continued
  // Whether thoughts are told apart from the answer; false: they are a part of its text.
  bool split_reasoning = true;
  int64_t thought_tokens = -1;                 // -1: as CompletionDefaults has it
  std::optional<std::string> thought_message;  // nullopt: as CompletionDefaults has it
  GenerationSpec spec;                         // all but the prompt
  ShownForm form;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
  size_t n = 1;  // choices per prompt
  bool echo = false;
  int prompt_logprobs = -1;  // vLLM's list of them, with this many of the likeliest; -1: none
  bool stream = false;
  bool include_usage = false;
  AtOnce at_once = AtOnce::kNo;               // otherwise there are no specs
  EmbeddingForm embedding;                    // if spec.pooling is not kNone
  std::optional<AnswerParserOptions> answer;  // MakeSpecs: how to read the answer; nullopt: it is
                                              // text
  Json echoed = Json::object();  // fields of the request that the dialect's answer repeats
  bool store = false;            // the client wants the answer kept, with input_items
  std::string input_items;       // JSON text of the items that it sent, if so
  std::shared_ptr<const StoredTurn> previous;  // the turn that it goes on from; null: none
  size_t ignored_fields = 0;                   // number of fields that Larder does not know
  size_t tool_bytes = 0;                       // bytes of the tools' texts

  bool offers_tools() const { return !tools.is_null() && tool_choice.kind != ToolUse::Kind::kNone; }
  bool is_chat() const { return !messages.is_null(); }
  // What the client calls its conversation.
  const char* conversation_field() const {
    return dialect == Dialect::kResponses ? "input" : "messages";
  }
  // What the running answer holds beside its specs: for each choice the tools, as trees.
  size_t held_bytes() const;
  std::string NameOf(size_t prompt) const;  // "input[1]"; for a chat "messages"
  size_t choices() const {
    return at_once != AtOnce::kNo ? 0 : n * std::max<size_t>(prompts.size(), 1);
  }
};

inline constexpr size_t kMostChoices = 64;
inline constexpr size_t kMostEmbedded = 2048;  // texts per request, as at OpenAI
inline constexpr int kMostLogprobs = 20;
inline constexpr size_t kMostLeftOut = 16;  // names of ignored fields that are reported
inline constexpr size_t kMostShownFields = 64, kMostShownFieldBytes = 256;

// Whether it is the model's name or an alias of it.
bool IsModel(std::string_view name, const CompletionDefaults&);
// Throws a Refused that names the field, its value and what was expected. find: finds the turns
// from which the client may go on; empty: there are none. names: gets the names of the fields that
// the reader knows, for the docs.
CompletionRequest ReadCompletionRequest(const Json&, Dialect, const CompletionDefaults&,
                                        const FindTurn& find = {}, FieldNames* names = nullptr);
// The prompt that the template makes of a chat. Throws Refused.
std::vector<model::TextPiece> RenderedChat(const CompletionRequest&, const CompletionDefaults&);
// What a template can do, as llama-server's chat_template_caps.
nlohmann::json ChatCapsJson(const model::ChatTemplate&);
// The tokens of the first prompt, which need not fit the context. Throws Refused.
size_t CountPromptTokens(CompletionRequest&, const CompletionDefaults&);
// Tokenizes. The specs are ordered by prompt, then by choice. Throws Refused.
std::vector<GenerationSpec> MakeSpecs(CompletionRequest&, const CompletionDefaults&);
// The bytes of the longest text of any token.
size_t LongestTokenBytes(const model::Tokenizer&);
// A plain prompt of the text stream.
CompletionRequest PlainRequest(std::string prompt, const CompletionDefaults&);

// A client's text, prepared for the start of its generation, or the reason why it is refused. Run()
// uses no other state but find's, so any thread may call it.
struct PreparedRequest {
  std::string text;
  Dialect dialect = Dialect::kCompletion;
  FindTurn find;
  CompletionRequest request;
  std::vector<GenerationSpec> specs;
  std::optional<Refused> refused;

  void Run(const CompletionDefaults& defaults);
};

}  // namespace larder::serving::api
