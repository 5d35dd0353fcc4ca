// HttpParser: parses a client's bytes into HTTP/1.1 requests, with Boost.Beast. One per connection;
// I/O thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace larder::serving::inline http {

struct HttpRequest {
  std::string method, target, body;
  std::string path;  // target without its query
  std::string authorization, origin, content_type;
  std::string api_key;     // x-api-key, as Anthropic's clients send it
  std::string host;        // empty: none was sent
  std::string fetch_site;  // Sec-Fetch-Site: how the page's origin relates to the requested address
  std::string wants_headers;  // Access-Control-Request-Headers of a browser's preflight request
  bool keep_alive = true;
  bool http10 = false;
};

struct HttpLimits {
  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{1} << 20;
  // A larger limit for requests whose body is taken as it arrives (HttpParser::TakeBody). Called
  // with method and path; nullopt: an ordinary request. May be empty.
  std::function<std::optional<size_t>(std::string_view method, std::string_view path)> streamed;
};

class HttpParser {
 public:
  explicit HttpParser(const HttpLimits&);
  ~HttpParser();

  // Parses bytes and returns how many it used. It uses none beyond the end of a request; call again
  // with the rest after Take().
  size_t Feed(std::string_view bytes);
  bool done() const;          // a request is complete
  bool begun() const;         // a part of a request has been parsed
  HttpRequest Take();         // only when done(); then ready for the next request
  size_t held_bytes() const;  // bytes of an incomplete request
  std::string path() const;   // path of an incomplete or refused request; empty: not known
  // The request without its body, once per request, as soon as its header is complete.
  std::optional<HttpRequest> NewHeader();
  // The bytes of the body that have arrived since the last call; Take() has the rest of them.
  std::string TakeBody();
  // Whether an Expect: 100-continue wants its answer; true once per request.
  bool wants_continue();
  // Not 0: the bytes are not a request that the server accepts. No further bytes are parsed.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }

 private:
  struct Impl;
  void Fail(int status, std::string why);
  void TakeHeader();
  void CheckFraming();  // when the header is complete
  void CheckBody();
  HttpLimits limits_;
  std::unique_ptr<Impl> impl_;
  std::string header_;  // an incomplete header, which the parser must see again from its start
  int error_status_ = 0;
  std::string error_;
  bool continue_told_ = false, header_told_ = false;
  size_t body_limit_ = 0;  // limit for the request that is being parsed, once its header is
                           // complete
  uint64_t body_taken_ = 0;
};

}  // namespace larder::serving::http
