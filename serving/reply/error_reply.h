// Errors as clients of each API expect them, and the JSON text of answers. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "serving/api/dialect.h"
#include "serving/generation/refused.h"

namespace larder::serving::inline reply {

// OpenAI: {"error":{"message","type","param","code"}}. Anthropic:
// {"type":"error","error":{"type","message"}}. Ollama: {"error":"..."}.
// code: OpenAI's name of the error; empty: that of the status.
nlohmann::json ErrorJson(int status, std::string_view message, std::string_view param = {},
                         ErrorShape shape = ErrorShape::kOpenAi, std::string_view code = {});
// The same for a Refused. For a prompt that does not fit it has the words and fields of each API:
// OpenAI's code, llama-server's type and numbers, Anthropic's sentence.
nlohmann::json ErrorJson(const Refused&, ErrorShape shape = ErrorShape::kOpenAi);
// The JSON text for clients; bytes that are not UTF-8 become U+FFFD.
std::string Dump(const nlohmann::json&);
std::string Dump(const nlohmann::ordered_json&);
std::string Dump(std::string_view text);

}  // namespace larder::serving::reply
