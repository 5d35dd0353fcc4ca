// The JSON of answers: OpenAI's completions and chat completions, whole or in chunks, llama-server's
// /completion, and OpenAI's errors. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/completion_request.h"
#include "serving/scheduling/generation.h"

namespace larder::serving::inline api {

// The fields that all parts of an answer share.
struct ReplyHead {
  Dialect dialect = Dialect::kCompletion;
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
  bool include_usage = false;
  const model::Tokenizer* tokenizer = nullptr;
};

struct ChoiceResult {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
  bool with_logprobs = false;
  size_t prompt = 0;  // its index: choices of one prompt share its tokens in the usage
  GenerationEnd end;
};

// {"error":{"message","type","param","code"}}
nlohmann::json ErrorJson(int status, std::string_view message, std::string_view param = {});

// A piece of a choice's text. `text_offset`: the bytes of the choice before this piece.
nlohmann::json ChunkJson(const ReplyHead&, size_t index, std::string_view text,
                         const std::vector<TokenLogprobs>* logprobs, size_t text_offset);
// The first chunk of a chat's choice; it has only the role.
nlohmann::json RoleChunkJson(const ReplyHead&, size_t index);
nlohmann::json LastChunkJson(const ReplyHead&, size_t index, const GenerationEnd&);
nlohmann::json UsageChunkJson(const ReplyHead&, const std::vector<ChoiceResult>&);
nlohmann::json WholeJson(const ReplyHead&, const std::vector<ChoiceResult>&);

nlohmann::json UsageJson(const std::vector<ChoiceResult>&);
nlohmann::json TimingsJson(const GenerationStats&);
// The JSON text for clients; bytes that are not UTF-8 become U+FFFD.
std::string Dump(const nlohmann::json&);

}  // namespace larder::serving::api
