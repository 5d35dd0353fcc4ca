// A reply of an HTTP/1.1 server, read piece by piece as it comes, for `larder bench-serve`. One reply at a
// time; what a server may send without end is bounded.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace larder::node {

class HttpReply {
 public:
  // Takes all of `bytes`; appends to `body` what they say of it. Throws Error for what is not HTTP/1.1.
  void Feed(std::string_view bytes, std::string& body);
  // The connection closed. Throws Error if something is missing.
  void Close();

  bool done() const { return state_ == State::kDone; }
  bool begun() const { return begun_; }
  int status() const { return status_; }
  bool keep_alive() const { return keep_alive_; }  // of a reply that is done
  void Reset() { *this = HttpReply(); }

 private:
  enum class State { kStatus, kHeaders, kLength, kToClose, kChunkSize, kChunk, kChunkEnd, kTrailers, kDone };

  void Line(std::string_view line);
  void Header(std::string_view line);
  void EndOfHeaders();

  State state_ = State::kStatus;
  std::string line_;  // what has come of the line at hand
  size_t header_bytes_ = 0;
  int status_ = 0;
  bool begun_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool has_length_ = false;
  size_t left_ = 0;  // bytes of the body or the chunk
};

}  // namespace larder::node
