#include "serving/reply/error_reply.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;

const char* OpenAiType(int status) {
  switch (status) {
    case 400:
    case 405:
    case 413:
    case 415:
    case 431:
      return "invalid_request_error";
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

json OpenAiCode(int status, std::string_view param) {
  if (status == 401) return "invalid_api_key";
  if (status == 404 && param == "model") return "model_not_found";
  return status;
}

const char* AnthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}
std::string Dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}
std::string Dump(std::string_view text) { return Dump(json(text)); }

json ErrorJson(int status, std::string_view message, std::string_view param, ErrorShape shape,
               std::string_view code) {
  switch (shape) {
    case ErrorShape::kAnthropic:
      return {{"type", "error"},
              {"error", {{"type", AnthropicType(status)}, {"message", message}}}};
    case ErrorShape::kOllama:
      return {{"error", message}};
    case ErrorShape::kOpenAi:
      break;
  }
  return {{"error",
           {{"message", message},
            {"type", OpenAiType(status)},
            {"param", param.empty() ? json() : json(param)},
            {"code", code.empty() ? OpenAiCode(status, param) : json(code)}}}};
}

json ErrorJson(const Refused& why, ErrorShape shape) {
  const std::optional<Overflow>& overflow = why.overflow();
  if (!overflow) return ErrorJson(why.status(), why.what(), why.param(), shape, why.code());
  if (shape == ErrorShape::kAnthropic)
    return ErrorJson(why.status(),
                     fmt::format("prompt is too long: {} tokens > {} maximum", overflow->tokens,
                                 overflow->context),
                     {}, shape);
  json reply = ErrorJson(why.status(), why.what(), why.param(), shape);
  if (shape == ErrorShape::kOllama) return reply;
  json& error = reply["error"];
  error["type"] = "exceed_context_size_error";
  error["code"] = "context_length_exceeded";
  error["n_prompt_tokens"] = overflow->tokens;
  error["n_ctx"] = overflow->context;
  return reply;
}

}  // namespace larder::serving::reply
