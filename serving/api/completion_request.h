// Turns a client's JSON (in the form of OpenAI's API, of llama-server or of the text stream) into a
// CompletionRequest, and that into one GenerationSpec per choice. Clients' bytes are not trusted: the outcome
// is always a request or a Refused. No state; any thread.
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
#include "serving/scheduling/generation.h"
#include "serving/scheduling/generation_service.h"

namespace larder::serving::inline api {

// The defaults of fields that a request leaves out, and the limits that it is checked against.
struct CompletionDefaults {
  std::shared_ptr<const model::Tokenizer> tokenizer;
  std::shared_ptr<const model::ChatTemplate> chat_template;  // null: chats are lines of "role: content"
  SamplingParams sampling;
  std::optional<uint64_t> seed;  // nullopt: each request draws its own
  int64_t max_tokens = -1;
  size_t vocab = 0, context = 0;
  size_t longest_token_bytes = SIZE_MAX / 2;  // a text of more than context times this cannot fit
  std::string model;                          // the name in /v1/models
  std::vector<std::string> aliases;           // other names that are accepted for it
};

enum class Dialect {
  kCompletion,  // POST /v1/completions
  kChat,        // POST /v1/chat/completions
  kNative,      // POST /completion, as llama-server, and the text stream
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  Dialect dialect = Dialect::kCompletion;
  std::vector<Prompt> prompts;
  nlohmann::ordered_json messages;  // instead of prompts: an array in OpenAI's form; null: there are prompts
  nlohmann::ordered_json tools;
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();  // further variables of the template
  bool add_generation_prompt = true;
  bool continue_last = false;  // the last message is the assistant's and goes on
  GenerationSpec spec;         // all but the prompt
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
  size_t n = 1;  // choices per prompt
  bool echo = false;
  bool stream = false;
  bool include_usage = false;

  size_t choices() const { return n * std::max<size_t>(prompts.size(), 1); }
};

inline constexpr size_t kMostChoices = 64;
inline constexpr int kMostLogprobs = 20;

// Throws Refused (400) if the text is not JSON, not UTF-8, or nested deeper than any request.
nlohmann::json ParseJson(std::string_view text);
// Throws a Refused that names the field, its value and what was expected.
CompletionRequest ReadCompletionRequest(const nlohmann::json&, Dialect, const CompletionDefaults&);
// The prompt that the template makes of a chat. Throws Refused.
std::vector<model::TextPiece> RenderedChat(const CompletionRequest&, const CompletionDefaults&);
// Tokenizes. The specs are ordered by prompt, then by choice. Throws Refused.
std::vector<GenerationSpec> MakeSpecs(const CompletionRequest&, const CompletionDefaults&);
// The bytes of the longest text of any token.
size_t LongestTokenBytes(const model::Tokenizer&);
// A plain prompt of the text stream.
CompletionRequest PlainRequest(std::string prompt, const CompletionDefaults&);

// A client's text, prepared for the start of its generation, or the reason why it is refused. Run() uses no
// other state, so any thread may call it.
struct PreparedRequest {
  std::string text;
  Dialect dialect = Dialect::kCompletion;
  CompletionRequest request;
  std::vector<GenerationSpec> specs;
  std::optional<Refused> refused;

  void Run(const CompletionDefaults& defaults);
};

}  // namespace larder::serving::api
