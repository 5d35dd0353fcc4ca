#include "serving/api/completion_reply.h"

namespace larder::serving::inline api {
namespace {

using nlohmann::json;

const char* FinishName(FinishReason reason) {
  const bool length = reason == FinishReason::kLength || reason == FinishReason::kContextFull;
  return length ? "length" : "stop";
}

json Head(const ReplyHead& head, const char* object) {
  json reply = {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
  return reply;
}

std::string Piece(const ReplyHead& head, TokenId token) { return head.tokenizer->Piece(token, true); }

json CompletionLogprobs(const ReplyHead& head, const std::vector<TokenLogprobs>& logprobs, size_t offset) {
  json tokens = json::array(), values = json::array(), tops = json::array(), offsets = json::array();
  for (const TokenLogprobs& one : logprobs) {
    const std::string piece = Piece(head, one.token);
    json top = json::object();
    for (const auto& [token, logprob] : one.top) top[Piece(head, token)] = logprob;
    tokens.push_back(piece);
    values.push_back(one.logprob);
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += piece.size();
  }
  return {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

json TokenJson(const ReplyHead& head, TokenId token, float logprob) {
  const std::string piece = Piece(head, token);
  json bytes = json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", piece}, {"logprob", logprob}, {"bytes", bytes}};
}

json TokenList(const ReplyHead& head, const std::vector<TokenLogprobs>& logprobs) {
  json list = json::array();
  for (const TokenLogprobs& one : logprobs) {
    json top = json::array();
    for (const auto& [token, logprob] : one.top) top.push_back(TokenJson(head, token, logprob));
    json entry = TokenJson(head, one.token, one.logprob);
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

json LogprobsJson(const ReplyHead& head, const std::vector<TokenLogprobs>* logprobs, size_t offset) {
  if (logprobs == nullptr) return nullptr;
  if (head.dialect == Dialect::kChat) return {{"content", TokenList(head, *logprobs)}, {"refusal", nullptr}};
  return CompletionLogprobs(head, *logprobs, offset);
}

json Chunk(const ReplyHead& head, json choice) {
  json chunk = Head(head, head.dialect == Dialect::kChat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = json::array({std::move(choice)});
  if (head.include_usage) chunk["usage"] = nullptr;
  return chunk;
}

const char* StopType(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfText:
      return "eos";
    case FinishReason::kStopString:
      return "word";
    case FinishReason::kLength:
    case FinishReason::kContextFull:
      return "limit";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kRefused:
    case FinishReason::kFailed:
    case FinishReason::kUnavailable:
      return "none";
  }
  return "none";
}

// llama-server's last chunk, or its whole answer.
json NativeLast(const ReplyHead& head, size_t index, std::string_view text, const GenerationEnd& end) {
  return {{"index", index},
          {"content", text},
          {"stop", true},
          {"stop_type", StopType(end.reason)},
          {"stopping_word", end.stop_string},
          {"truncated", end.reason == FinishReason::kContextFull},
          {"model", head.model},
          {"tokens_predicted", end.stats.generated_tokens},
          {"tokens_evaluated", end.stats.prompt_tokens},
          {"tokens_cached", end.stats.reused_tokens},
          {"timings", TimingsJson(end.stats)}};
}

const char* ErrorType(int status) {
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
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

json ErrorCode(int status, std::string_view param) {
  if (status == 401) return "invalid_api_key";
  if (status == 404 && param == "model") return "model_not_found";
  return status;
}

}  // namespace

std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json ErrorJson(int status, std::string_view message, std::string_view param) {
  return {{"error",
           {{"message", message},
            {"type", ErrorType(status)},
            {"param", param.empty() ? json() : json(param)},
            {"code", ErrorCode(status, param)}}}};
}

json ChunkJson(const ReplyHead& head, size_t index, std::string_view text,
               const std::vector<TokenLogprobs>* logprobs, size_t text_offset) {
  if (head.dialect == Dialect::kNative) {
    json chunk = {{"index", index}, {"content", text}, {"stop", false}};
    if (logprobs != nullptr) chunk["completion_probabilities"] = TokenList(head, *logprobs);
    return chunk;
  }
  json choice = {{"index", index}, {"finish_reason", nullptr}};
  choice["logprobs"] = LogprobsJson(head, logprobs, text_offset);
  if (head.dialect == Dialect::kChat) {
    choice["delta"] = {{"content", text}};
  } else {
    choice["text"] = text;
  }
  return Chunk(head, std::move(choice));
}

json RoleChunkJson(const ReplyHead& head, size_t index) {
  return Chunk(head, {{"index", index},
                      {"delta", {{"role", "assistant"}, {"content", ""}}},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}});
}

json LastChunkJson(const ReplyHead& head, size_t index, const GenerationEnd& end) {
  if (head.dialect == Dialect::kNative) return NativeLast(head, index, "", end);
  json choice = {{"index", index}, {"logprobs", nullptr}, {"finish_reason", FinishName(end.reason)}};
  if (head.dialect == Dialect::kChat) {
    choice["delta"] = json::object();
  } else {
    choice["text"] = "";
  }
  json chunk = Chunk(head, std::move(choice));
  chunk["timings"] = TimingsJson(end.stats);
  return chunk;
}

json UsageJson(const std::vector<ChoiceResult>& choices) {
  size_t prompt = 0, cached = 0, generated = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const GenerationStats& stats = choices[i].end.stats;
    if (i == 0 || choices[i].prompt != choices[i - 1].prompt) {
      prompt += stats.prompt_tokens;
      cached += stats.reused_tokens;
    }
    generated += stats.generated_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

json UsageChunkJson(const ReplyHead& head, const std::vector<ChoiceResult>& choices) {
  json chunk = Head(head, head.dialect == Dialect::kChat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = json::array();
  chunk["usage"] = UsageJson(choices);
  return chunk;
}

json WholeJson(const ReplyHead& head, const std::vector<ChoiceResult>& results) {
  if (head.dialect == Dialect::kNative) {
    json all = json::array();
    for (size_t i = 0; i < results.size(); ++i) {
      all.push_back(NativeLast(head, i, results[i].text, results[i].end));
      if (results[i].with_logprobs)
        all.back()["completion_probabilities"] = TokenList(head, results[i].logprobs);
    }
    return all.size() == 1 ? all[0] : all;
  }
  json reply = Head(head, head.dialect == Dialect::kChat ? "chat.completion" : "text_completion");
  json& choices = reply["choices"] = json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    const ChoiceResult& result = results[i];
    json choice = {{"index", i}, {"finish_reason", FinishName(result.end.reason)}};
    choice["logprobs"] = LogprobsJson(head, result.with_logprobs ? &result.logprobs : nullptr, 0);
    if (head.dialect == Dialect::kChat) {
      choice["message"] = {{"role", "assistant"}, {"content", result.text}, {"refusal", nullptr}};
    } else {
      choice["text"] = result.text;
    }
    choices.push_back(std::move(choice));
  }
  reply["usage"] = UsageJson(results);
  if (results.size() == 1) reply["timings"] = TimingsJson(results[0].end.stats);
  return reply;
}

json TimingsJson(const GenerationStats& stats) {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  const auto rate = [](size_t n, double of_ms) {
    return of_ms > 0 ? 1e3 * static_cast<double>(n) / of_ms : 0.0;
  };
  const size_t run = stats.prompt_tokens - stats.reused_tokens;
  const size_t steps = stats.generated_tokens > 0 ? stats.generated_tokens - 1 : 0;
  const bool any = stats.generated_tokens > 0;
  const double prompt_ms = any ? ms(stats.first_token_ns - stats.queue_ns) : 0;
  const double decode_ms = any ? ms(stats.total_ns - stats.first_token_ns) : 0;
  return {{"cache_n", stats.reused_tokens},
          {"prompt_n", run},
          {"prompt_ms", prompt_ms},
          {"prompt_per_second", rate(run, prompt_ms)},
          {"predicted_n", stats.generated_tokens},
          {"predicted_ms", decode_ms},
          {"predicted_per_token_ms", steps > 0 ? decode_ms / static_cast<double>(steps) : 0.0},
          {"predicted_per_second", rate(steps, decode_ms)},
          {"queue_ms", ms(stats.queue_ns)},
          {"ttft_ms", ms(stats.first_token_ns)}};
}

}  // namespace larder::serving::api
