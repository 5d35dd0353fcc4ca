// What `larder bench-serve` sends and how it reads replies, without connections: RequestBytes and a
// ReplyReader per request, for each kind of endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/loadgen/http_reply_parser.h"

namespace larder::node::inline loadgen {

enum class EndpointKind { kCompletions, kChat, kText };

struct ServeTarget {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  EndpointKind kind = EndpointKind::kCompletions;
  std::string path;  // path of the HTTP endpoint
  std::string model, api_key;
};

struct LoadRequest {
  std::string prompt;
  size_t output_tokens = 128;  // upper limit
  // For chat, in OpenAI's form. Null messages: one message of the user, the prompt. Null tools:
  // none.
  nlohmann::json messages, tools;
  size_t turn = 0;  // how many requests of the same conversation came before
};

// Sampling fields that all requests share.
struct LoadSampling {
  double temperature = std::numeric_limits<double>::quiet_NaN();  // NaN: the server's default
  bool ignore_eos = false;
};

// What the model said in a chat: the next request of the conversation repeats it.
struct ReplyMessage {
  struct Call {
    std::string id, name, arguments;
  };
  std::string content;
  std::vector<Call> calls;
};

// The outcome of a request; times are NowNs().
struct RequestResult {
  bool ok = false;
  std::string error;         // empty if ok
  int64_t start_ns = 0;      // the request was about to be sent
  int64_t first_ns = 0;      // the first text was read
  int64_t last_ns = 0;       // the last text was read
  size_t prompt_tokens = 0;  // the server's count; 0: not reported
  size_t cached_tokens = 0;  // the cached part of them; 0: none, or not reported
  size_t output_tokens = 0;  // the server's count, or else the number of pieces of text
  size_t text_bytes = 0;
  size_t turn = 0;               // turn of the request
  std::vector<int64_t> gaps_ns;  // between pieces of text: ITL
  ReplyMessage message;          // kept only for LoadSpec::next
};

// An HTTP request to the target's host, with its key.
std::string HttpBytes(const ServeTarget&, const char* method, std::string_view path,
                      const std::string& body);
std::string RequestBytes(const ServeTarget&, const LoadRequest&, const LoadSampling&);

// Extracts the text from a stream's JSON objects, which differ only in a piece of text: what
// surrounds it is compared, not parsed. A client that parses every object takes as much CPU time as
// the server's part in making it.
class AlikeObjects {
 public:
  // The piece, if `object` otherwise equals the learnt one; nullopt if it must be parsed.
  std::optional<std::string_view> Piece(std::string_view object) const;
  // Learns from an object that holds `piece` as a string, if it occurs there unescaped and exactly
  // once.
  void Learn(std::string_view object, std::string_view piece);

 private:
  std::string before_, after_;  // text before and after the piece, with its quotes
};

class ReplyReader {
 public:
  // keep: the result gets the message, too.
  explicit ReplyReader(EndpointKind kind, bool keep = false) : kind_(kind), keep_(keep) {}

  // Takes bytes that were read at `now_ns`. Returns true when the reply is complete; result.ok or
  // result.error then has the outcome. Throws Error if the bytes are no valid reply.
  bool Feed(std::string_view bytes, int64_t now_ns, RequestResult& result);
  // The connection has closed; returns as Feed does.
  bool Close(RequestResult& result);

  bool begun() const { return begun_; }
  bool keep_alive() const { return kind_ == EndpointKind::kText || http_.keep_alive(); }

 private:
  bool HttpEnd(RequestResult& result);
  void Event(std::string_view json, int64_t now_ns, RequestResult& result);
  void ChatDelta(const nlohmann::json& delta, int64_t now_ns, RequestResult& result);
  bool TextLine(std::string_view json, int64_t now_ns, RequestResult& result);
  void Piece(std::string_view text, int64_t now_ns, RequestResult& result);

  EndpointKind kind_;
  bool keep_;
  HttpReplyParser http_;
  AlikeObjects alike_;
  std::string rest_;  // the part of the body after the last whole line; all of it if the reply is
                      // not a stream
  bool begun_ = false;
  bool ended_ = false;  // a finish reason has come
  size_t counted_ = 0;  // output tokens that the server counted
  size_t pieces_ = 0;
};

}  // namespace larder::node::loadgen
