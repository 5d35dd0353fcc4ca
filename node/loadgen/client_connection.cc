#include "node/loadgen/client_connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace larder::node::inline loadgen {
namespace {

Descriptor NewSocket(const Address& address, int flags) {
  Descriptor fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) throw Error("can't create a socket: {}", std::strerror(errno));
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

bool StartConnect(const Descriptor& fd, const Address& address) {
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) ==
         0;
}

}  // namespace

Address Resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0) throw Error("can't resolve host '{}': {}", host, gai_strerror(failed));
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

Descriptor Connect(const Address& address) {
  Descriptor fd = NewSocket(address, SOCK_NONBLOCK);
  if (!StartConnect(fd, address) && errno != EINPROGRESS)
    throw Error("can't connect: {}", std::strerror(errno));
  return fd;
}

Descriptor ConnectAndWait(const Address& address, double timeout_s) {
  Descriptor fd = NewSocket(address, 0);
  const double whole_s = std::floor(timeout_s);
  const timeval limit = {.tv_sec = static_cast<time_t>(whole_s),
                         .tv_usec = static_cast<suseconds_t>((timeout_s - whole_s) * 1e6)};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (!StartConnect(fd, address)) throw Error("can't connect: {}", std::strerror(errno));
  return fd;
}

}  // namespace larder::node::loadgen
