// From what a client wrote to what is generated: JSON as OpenAI's API, llama-server and the text stream have
// it -> CompletionRequest -> one GenerationSpec for each choice. Clients' bytes are not trusted: whatever
// they are, the outcome is a request or a Refused. No state; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/chat/chat.h"
#include "serving/scheduling/generation.h"
#include "serving/scheduling/service.h"

namespace larder::serving {

// What a request may leave open, and what it is held against.
struct CompletionDefaults {
  std::shared_ptr<const model::Tokenizer> tokenizer;
  std::optional<model::ChatFormat> chat_format;  // nothing: chats are refused
  SamplingParams sampling;
  std::optional<uint64_t> seed;  // nothing: each request draws its own
  int64_t max_tokens = -1;
  size_t vocab = 0, context = 0;
  size_t longest_token_bytes = SIZE_MAX / 2;  // a text of more than context times this can't fit
  std::string model;                          // what /v1/models says
  std::vector<std::string> aliases;           // other names that are taken for it
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
  std::vector<model::ChatMessage> messages;  // instead of prompts
  bool think = true;
  GenerationSpec spec;  // all but the prompt
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
  size_t n = 1;  // choices for each prompt
  bool echo = false;
  bool stream = false;
  bool include_usage = false;

  size_t choices() const { return n * std::max<size_t>(prompts.size(), 1); }
};

inline constexpr size_t kMostChoices = 64;
inline constexpr int kMostLogprobs = 20;

// JSON, or Refused (400): not JSON, not UTF-8, nested deeper than any request is.
nlohmann::json ParseJson(std::string_view text);
// Throws Refused: names the field, what it is and what was expected.
CompletionRequest ReadCompletionRequest(const nlohmann::json&, Dialect, const CompletionDefaults&);
// Tokenizes; in order of prompt, then of choice. Throws Refused.
std::vector<GenerationSpec> MakeSpecs(const CompletionRequest&, const CompletionDefaults&);
// Of any token, as text.
size_t LongestTokenBytes(const model::Tokenizer&);
// A plain prompt of the text stream.
CompletionRequest PlainRequest(std::string prompt, const CompletionDefaults&);

// A client's text made ready to start, or why not. Run() touches nothing else: any thread may call it.
struct PreparedRequest {
  std::string text;
  Dialect dialect = Dialect::kCompletion;
  CompletionRequest request;
  std::vector<GenerationSpec> specs;
  std::optional<Refused> refused;

  void Run(const CompletionDefaults& defaults);
};

}  // namespace larder::serving
