// HttpParser: a client's bytes -> HTTP/1.1 requests, by Boost.Beast. One per connection, I/O thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace larder::serving {

struct HttpRequest {
  std::string method, target, body;
  std::string path;  // target without its query
  std::string authorization, origin, content_type;
  std::string host;           // empty: none was sent
  std::string fetch_site;     // Sec-Fetch-Site: what a browser says of a page and the address that it asks
  std::string wants_headers;  // Access-Control-Request-Headers of a browser that asks first
  bool keep_alive = true;
  bool http10 = false;
};

struct HttpLimits {
  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{1} << 20;
};

class HttpParser {
 public:
  explicit HttpParser(const HttpLimits&);
  ~HttpParser();

  // Takes bytes and returns how many it used; none are used beyond a request's end. Call again with the rest
  // when Next() was taken.
  size_t Feed(std::string_view bytes);
  bool done() const;          // a whole request is there
  bool begun() const;         // part of one is
  HttpRequest Take();         // when done; ready for the next
  size_t held_bytes() const;  // of a request that is not whole yet
  // A request without its body, as soon as its header is whole; once a request.
  std::optional<HttpRequest> NewHead();
  // An Expect: 100-continue wants its answer; true once a request.
  bool wants_continue();
  // Not 0: the bytes are no request that we take. Nothing can follow.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }

 private:
  struct Impl;
  void Fail(int status, std::string why);
  void CheckFraming();  // once the header is whole
  HttpLimits limits_;
  std::unique_ptr<Impl> impl_;
  std::string head_;  // what the parser wants to see again: an incomplete header
  int error_status_ = 0;
  std::string error_;
  bool continue_told_ = false, head_told_ = false;
};

}  // namespace larder::serving
