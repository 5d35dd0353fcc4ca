#include "node/loadgen/serve_wire.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace larder::node::inline loadgen {
namespace {

using nlohmann::json;

constexpr size_t kMaxLineBytes = 16 << 20;

json Parse(std::string_view text) {
  json value = TryParseJsonText<json>(text).value_or(json());
  if (!value.is_object())
    throw Error("the server sent something other than a JSON object: '{}'", text.substr(0, 80));
  return value;
}

// The member of that key, or null: a server's JSON may hold anything.
const json& At(const json& value, const char* key) {
  static const json kNull;
  if (!value.is_object()) return kNull;
  const auto found = value.find(key);
  return found == value.end() ? kNull : *found;
}

size_t Count(const json& value) { return value.is_number_unsigned() ? value.get<size_t>() : 0; }

std::string ErrorText(const json& error) {
  const json& message = At(error, "message");
  return message.is_string() ? message.get<std::string>()
                             : error.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string HttpBytes(const ServeTarget& target, const char* method, std::string_view path,
                      const std::string& body) {
  const bool ipv6 = target.host.find(':') != std::string::npos;
  std::string out =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: larder\r\n", method, path,
                  ipv6 ? fmt::format("[{}]", target.host) : target.host, target.port);
  if (!target.api_key.empty()) out += fmt::format("Authorization: Bearer {}\r\n", target.api_key);
  if (!body.empty())
    out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  return out + "\r\n" + body;
}

std::string RequestBytes(const ServeTarget& target, const LoadRequest& request,
                         const LoadSampling& sampling) {
  json body;
  if (!std::isnan(sampling.temperature)) body["temperature"] = sampling.temperature;
  if (sampling.ignore_eos) body["ignore_eos"] = true;
  if (target.kind == EndpointKind::kText) {
    body["prompt"] = request.prompt;
    body["n_predict"] = request.output_tokens;
    return body.dump() + "\n";
  }
  body["model"] = target.model;
  body["max_tokens"] = request.output_tokens;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (target.kind == EndpointKind::kChat) {
    body["messages"] = request.messages.is_null()
                           ? json::array({{{"role", "user"}, {"content", request.prompt}}})
                           : request.messages;
    if (!request.tools.is_null()) body["tools"] = request.tools;
  } else {
    body["prompt"] = request.prompt;
  }
  return HttpBytes(target, "POST", target.path,
                   body.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::optional<std::string_view> AlikeObjects::Piece(std::string_view object) const {
  if (before_.empty() || object.size() < before_.size() + after_.size()) return std::nullopt;
  if (!object.starts_with(before_) || !object.ends_with(after_)) return std::nullopt;
  const auto piece = object.substr(before_.size(), object.size() - before_.size() - after_.size());
  const bool plain = std::none_of(piece.begin(), piece.end(), [](char c) {
    return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
  });
  return plain ? std::optional(piece) : std::nullopt;
}

void AlikeObjects::Learn(std::string_view object, std::string_view piece) {
  if (!before_.empty() || piece.empty()) return;
  const std::string quoted = fmt::format("\"{}\"", piece);
  const size_t at = object.find(quoted);
  if (at == std::string_view::npos || object.find(quoted, at + 1) != std::string_view::npos) return;
  before_ = object.substr(0, at + 1);
  after_ = object.substr(at + quoted.size() - 1);
}

bool ReplyReader::Feed(std::string_view bytes, int64_t now_ns, RequestResult& result) {
  begun_ = begun_ || !bytes.empty();
  if (kind_ == EndpointKind::kText) {
    rest_ += bytes;
  } else {
    http_.Feed(bytes, rest_);
  }
  if (rest_.size() > kMaxLineBytes)
    throw Error("the server sent a line of more than {} bytes", kMaxLineBytes);
  bool done = false;
  const bool lines = kind_ == EndpointKind::kText || http_.status() == 200;
  size_t at = 0;
  for (size_t end; lines && !done && (end = rest_.find('\n', at)) != std::string::npos;
       at = end + 1) {
    std::string_view line(rest_.data() + at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (kind_ == EndpointKind::kText) {
      done = TextLine(line, now_ns, result);
    } else if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      if (line != "[DONE]") Event(line, now_ns, result);
    }
  }
  rest_.erase(0, at);
  return done || (kind_ != EndpointKind::kText && http_.done() && HttpEnd(result));
}

bool ReplyReader::Close(RequestResult& result) {
  if (kind_ == EndpointKind::kText) throw Error("the connection closed in the middle of the reply");
  http_.Close();
  return HttpEnd(result);
}

bool ReplyReader::HttpEnd(RequestResult& result) {
  if (http_.status() != 200) {
    const json body = TryParseJsonText<json>(rest_).value_or(json());
    const json& error = At(body, "error");
    result.error = fmt::format("status {}: {}", http_.status(),
                               error.is_null() ? rest_.substr(0, 200) : ErrorText(error));
  } else if (result.error.empty() && !ended_) {
    result.error = "the stream ended without a finish reason";
  }
  result.ok = result.error.empty();
  result.output_tokens = counted_ > 0 ? counted_ : pieces_;
  return true;
}

void ReplyReader::Event(std::string_view text, int64_t now_ns, RequestResult& result) {
  if (const auto piece = alike_.Piece(text)) {
    if (keep_) result.message.content += *piece;
    return Piece(*piece, now_ns, result);
  }
  const json event = Parse(text);
  if (const json& error = At(event, "error"); !error.is_null()) {
    result.error = ErrorText(error);
    return;
  }
  if (const json& usage = At(event, "usage"); usage.is_object()) {
    counted_ = Count(At(usage, "completion_tokens"));
    result.prompt_tokens = Count(At(usage, "prompt_tokens"));
    result.cached_tokens = Count(At(At(usage, "prompt_tokens_details"), "cached_tokens"));
  }
  const json& choices = At(event, "choices");
  if (!choices.is_array() || choices.empty()) return;
  const json& choice = choices[0];
  if (!At(choice, "finish_reason").is_null()) ended_ = true;
  if (kind_ == EndpointKind::kChat) ChatDelta(At(choice, "delta"), now_ns, result);
  const json& piece =
      kind_ == EndpointKind::kChat ? At(At(choice, "delta"), "content") : At(choice, "text");
  if (!piece.is_string()) return;
  const auto& string = piece.get_ref<const std::string&>();
  if (keep_) result.message.content += string;
  Piece(string, now_ns, result);
  if (!ended_) alike_.Learn(text, string);
}

// Thoughts and calls are text, too, for the times; thoughts are not repeated in the conversation.
void ReplyReader::ChatDelta(const json& delta, int64_t now_ns, RequestResult& result) {
  if (const json& thought = At(delta, "reasoning_content"); thought.is_string())
    Piece(thought.get_ref<const std::string&>(), now_ns, result);
  const json& calls = At(delta, "tool_calls");
  if (!calls.is_array()) return;
  for (const json& call : calls) {
    const size_t index = Count(At(call, "index"));
    if (index > result.message.calls.size())
      throw Error("the server sent tool call {} out of order", index);
    const auto add = [&](const json& text, std::string& kept) {
      if (!text.is_string()) return;
      kept += text.get_ref<const std::string&>();
      Piece(text.get_ref<const std::string&>(), now_ns, result);
    };
    if (index == result.message.calls.size()) result.message.calls.emplace_back();
    ReplyMessage::Call& kept = result.message.calls[index];
    if (const json& id = At(call, "id"); id.is_string() && kept.id.empty()) kept.id = id;
    add(At(At(call, "function"), "name"), kept.name);
    add(At(At(call, "function"), "arguments"), kept.arguments);
  }
}

bool ReplyReader::TextLine(std::string_view text, int64_t now_ns, RequestResult& result) {
  if (const auto piece = alike_.Piece(text)) {
    Piece(*piece, now_ns, result);
    return false;
  }
  const json line = Parse(text);
  if (const json& error = At(line, "error"); !error.is_null()) {
    result.error = error.is_string() ? error.get<std::string>() : ErrorText(error);
    return true;
  }
  const bool last = At(line, "stop") == true;
  if (const json& piece = At(line, "content"); piece.is_string()) {
    const auto& string = piece.get_ref<const std::string&>();
    Piece(string, now_ns, result);
    if (!last) alike_.Learn(text, string);
  }
  if (!last) return false;
  counted_ = Count(At(line, "tokens_predicted"));
  result.prompt_tokens = Count(At(line, "tokens_evaluated"));
  result.output_tokens = counted_ > 0 ? counted_ : pieces_;
  result.ok = true;
  return true;
}

void ReplyReader::Piece(std::string_view text, int64_t now_ns, RequestResult& result) {
  if (text.empty()) return;
  if (pieces_++ == 0) {
    result.first_ns = now_ns;
  } else {
    result.gaps_ns.push_back(now_ns - result.last_ns);
  }
  result.last_ns = now_ns;
  result.text_bytes += text.size();
}

}  // namespace larder::node::loadgen
