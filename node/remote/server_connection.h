// ServerConnection: one HTTP connection to a server, non-blocking, with one request at a time,
// which is kept as long as the server does. One thread, with an epoll of the owner's.
#pragma once

#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "node/loadgen/client_connection.h"
#include "node/loadgen/http_reply_parser.h"

namespace larder::node::inline remote {

class ServerConnection {
 public:
  static constexpr size_t kMostReplyBytes = size_t{64} << 20;

  // Events of the connection are reported to `epoll` with `tag`.
  ServerConnection(int epoll, uint64_t tag) : epoll_(epoll), tag_(tag) {}
  ServerConnection(ServerConnection&&) = default;

  // Sends a request, over a new connection if there is none. Only if it is not busy. Throws Error.
  void Send(const Address& address, std::string request);
  // To be called for every event. True: the reply is complete, and the connection is free. Throws
  // Error if the connection was lost; it is closed then. A server may close one without a request:
  // that is no error.
  bool Advance();
  void Close();  // also ends the server's work for the request

  bool busy() const { return busy_; }
  bool open() const { return static_cast<bool>(fd_); }
  const HttpReplyParser& reply() const { return reply_; }
  const std::string& body() const { return body_; }

 private:
  void Write();
  void WaitFor(uint32_t events);

  int epoll_;
  uint64_t tag_;
  Descriptor fd_;
  uint32_t waits_for_ = 0;
  std::string out_;
  size_t sent_ = 0;
  HttpReplyParser reply_;
  std::string body_;
  bool busy_ = false;
};

}  // namespace larder::node::remote
