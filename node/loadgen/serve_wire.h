// What `larder bench-serve` sends and how it understands what comes back, apart from sockets: one
// RequestBytes and one ReplyReader a request, for each kind of endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/loadgen/http_reply.h"

namespace larder::node {

enum class EndpointKind { kCompletions, kChat, kText };

struct ServeTarget {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  EndpointKind kind = EndpointKind::kCompletions;
  std::string path;  // of the HTTP endpoint
  std::string model, api_key;
};

struct LoadRequest {
  std::string prompt;
  size_t output_tokens = 128;  // at most
};

// Sampling fields of all requests.
struct LoadSampling {
  double temperature = std::numeric_limits<double>::quiet_NaN();  // NaN: the server's own
  bool ignore_eos = false;
};

// How a request went; times are NowNs().
struct RequestResult {
  bool ok = false;
  std::string error;         // if not ok
  int64_t start_ns = 0;      // the request was about to be sent
  int64_t first_ns = 0;      // the first text was read
  int64_t last_ns = 0;       // the last text was read
  size_t prompt_tokens = 0;  // the server's count; 0: it has not said
  size_t output_tokens = 0;  // the server's count, else the pieces of text
  size_t text_bytes = 0;
  std::vector<int64_t> gaps_ns;  // between pieces of text: ITL
};

std::string RequestBytes(const ServeTarget&, const LoadRequest&, const LoadSampling&);
std::string ModelsRequestBytes(const ServeTarget&);

// The objects of one stream are alike but for a piece of text: what is around it is compared, not parsed. A
// client that parses each of them takes as much of the machine as the server's part in them.
class AlikeObjects {
 public:
  // The piece, if `object` is as the one that was learnt but for that; none: parse it.
  std::optional<std::string_view> Piece(std::string_view object) const;
  // `object` holds `piece` as a string. Learnt if that is seen to be so, in one place only.
  void Learn(std::string_view object, std::string_view piece);

 private:
  std::string before_, after_;  // with the quotes
};

class ReplyReader {
 public:
  explicit ReplyReader(EndpointKind kind) : kind_(kind) {}

  // Bytes that were read at `now_ns`; true when the reply is complete, and result.ok or result.error then
  // says how it went. Throws Error for what is not understood.
  bool Feed(std::string_view bytes, int64_t now_ns, RequestResult& result);
  // The connection closed: as Feed.
  bool Close(RequestResult& result);

  bool begun() const { return begun_; }
  bool keep_alive() const { return kind_ == EndpointKind::kText || http_.keep_alive(); }

 private:
  bool HttpEnd(RequestResult& result);
  void Event(std::string_view json, int64_t now_ns, RequestResult& result);
  bool TextLine(std::string_view json, int64_t now_ns, RequestResult& result);
  void Piece(std::string_view text, int64_t now_ns, RequestResult& result);

  EndpointKind kind_;
  HttpReply http_;
  AlikeObjects alike_;
  std::string rest_;  // of the body, without whole lines; of a reply that is no stream, all
  bool begun_ = false;
  bool ended_ = false;  // a finish reason came
  size_t counted_ = 0;  // output tokens that the server counted
  size_t pieces_ = 0;
};

}  // namespace larder::node
