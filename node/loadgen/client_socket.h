// A TCP client's side of a connection, for `larder bench-serve`.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

namespace larder::node::inline loadgen {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  void Close() { *this = Fd(); }

 private:
  int fd_;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};
// Throws Error if the name has no address.
Address Resolve(const std::string& host, uint16_t port);

// A non-blocking connection in progress (EPOLLOUT reports when it is made), with TCP_NODELAY. Throws Error.
Fd Connect(const Address& address);
// A blocking connection; timeout_s limits this call and each later send and recv. Throws Error if it fails.
Fd ConnectAndWait(const Address& address, double timeout_s);

}  // namespace larder::node::loadgen
