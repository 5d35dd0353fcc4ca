// A parser of HTTP/1.1 replies for the clients in this program, fed with bytes as they arrive. It
// parses one reply at a time, and bounds everything that a server may send without end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace larder::node::inline loadgen {

class HttpReplyParser {
 public:
  // Takes all of `bytes` and appends their part of the body to `body`. Throws Error if they are not
  // HTTP/1.1.
  void Feed(std::string_view bytes, std::string& body);
  // The connection has closed. Throws Error if the reply is incomplete.
  void Close();

  bool done() const { return state_ == State::kDone; }
  bool begun() const { return begun_; }
  int status() const { return status_; }
  bool keep_alive() const { return keep_alive_; }       // valid once done()
  int retry_after_s() const { return retry_after_s_; }  // 0: the server did not say
  void Reset() { *this = HttpReplyParser(); }

 private:
  enum class State {
    kStatus,
    kHeaders,
    kLength,
    kToClose,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kTrailers,
    kDone
  };

  void Line(std::string_view line);
  void Header(std::string_view line);
  void EndOfHeaders();

  State state_ = State::kStatus;
  std::string line_;  // the current line as far as it has arrived
  size_t header_bytes_ = 0;
  int status_ = 0;
  bool begun_ = false;
  bool keep_alive_ = true;
  int retry_after_s_ = 0;
  bool chunked_ = false;
  bool has_length_ = false;
  size_t left_ = 0;  // bytes left of the body or the chunk
};

}  // namespace larder::node::loadgen
