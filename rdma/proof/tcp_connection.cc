#include "rdma/proof/tcp_connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include "base/clock.h"
#include "base/error.h"

namespace larder::rdma::inline proof {
namespace {

// Strangers may connect while a chain runs and no Accept() does; beyond this the kernel makes
// connectors wait.
constexpr int kBacklog = 512;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses Resolve(const std::string& host, uint16_t port, int flags, std::string* why) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &list);
  if (error == 0) return Addresses(list);
  *why = error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
  return nullptr;
}

Descriptor NewSocket(const addrinfo& address) {
  return Descriptor(
      socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// poll() that signals do not interrupt. Returns false at the deadline.
bool WaitFor(const Descriptor& socket, short events, int64_t deadline_ns) {
  for (;;) {
    pollfd watched = {socket.get(), events, 0};
    const int ready = poll(&watched, 1, LeftMs(deadline_ns));
    if (ready > 0) return true;
    if (ready == 0 && LeftMs(deadline_ns) == 0) return false;
  }
}

}  // namespace

int64_t DeadlineNs(int timeout_ms) {
  if (timeout_ms < 0) return std::numeric_limits<int64_t>::max();
  return NowNs() + int64_t{timeout_ms} * 1'000'000;
}

int LeftMs(int64_t deadline_ns) {
  const int64_t now_ns = NowNs();
  if (deadline_ns <= now_ns) return 0;
  return static_cast<int>(std::min<int64_t>((deadline_ns - now_ns) / 1'000'000 + 1, 3'600'000));
}

Descriptor ListenTcp(const std::string& host, uint16_t port, const std::string& what) {
  std::string why;
  const Addresses addresses = Resolve(host, port, AI_PASSIVE, &why);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Descriptor socket = NewSocket(*address);
    // A restarted stage must get its port back while connections of its last run are still in
    // TIME_WAIT.
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (socket && bind(socket.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        listen(socket.get(), kBacklog) == 0) {
      return socket;
    }
    why = std::strerror(errno);
    if (errno == EADDRINUSE)
      why += " (is this socket already running? stop it, or give it another port)";
    if (errno == EADDRNOTAVAIL) why += " (not an address of this server: see `ip address`)";
  }
  throw Error("{}: cannot listen on {}:{}: {}", what, host.empty() ? "*" : host, port, why);
}

int PortOf(const Descriptor& socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void SetLinkOptions(const Descriptor& socket) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket.get(), level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

namespace {

// Starts a connection. Returns why it failed; empty: connected or in progress.
std::string Begin(const Descriptor& socket, const addrinfo& address, const addrinfo* from) {
  if (from != nullptr) {
    const int on = 1;  // the port is chosen by connect(), when the destination is known
    setsockopt(socket.get(), SOL_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    if (bind(socket.get(), from->ai_addr, from->ai_addrlen) != 0) return std::strerror(errno);
  }
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0 || errno == EINPROGRESS)
    return {};
  return std::strerror(errno);
}

}  // namespace

Descriptor TryConnectTcp(const std::string& host, uint16_t port, const std::string& from,
                         int64_t deadline_ns, std::string* why) {
  const Addresses addresses = Resolve(host, port, 0, why);
  std::string ignored;
  const Addresses own = from.empty() ? nullptr : Resolve(from, 0, AI_PASSIVE, &ignored);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const addrinfo* source = own.get();
    while (source != nullptr && source->ai_family != address->ai_family) source = source->ai_next;
    Descriptor socket = NewSocket(*address);
    if (!socket) {
      *why = std::strerror(errno);
      continue;
    }
    std::string problem = Begin(socket, *address, source);
    if (!problem.empty() && source != nullptr) {  // not an address of this server, or it has no
                                                  // route there
      socket = NewSocket(*address);
      problem = socket ? Begin(socket, *address, nullptr) : std::strerror(errno);
    }
    if (!problem.empty()) {
      *why = problem;
      continue;
    }
    if (!WaitFor(socket, POLLOUT, deadline_ns)) {
      *why = std::strerror(ETIMEDOUT);
      continue;
    }
    int error = 0;
    socklen_t bytes = sizeof(error);
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == 0) {
      SetLinkOptions(socket);
      return socket;
    }
    *why = std::strerror(error);
  }
  return {};
}

bool HasLeft(int connection) {
  pollfd watched = {connection, POLLRDHUP, 0};
  return poll(&watched, 1, 0) > 0;
}

bool SendAll(const Descriptor& socket, const void* bytes, size_t count, int64_t deadline_ns) {
  const auto* next = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    const ssize_t sent = send(socket.get(), next, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      next += sent;
      count -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!WaitFor(socket, POLLOUT, deadline_ns)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool ReceiveAll(const Descriptor& socket, void* bytes, size_t count, int64_t deadline_ns) {
  auto* next = static_cast<std::byte*>(bytes);
  while (count > 0) {
    const ssize_t received = recv(socket.get(), next, count, MSG_DONTWAIT);
    if (received > 0) {
      next += received;
      count -= static_cast<size_t>(received);
    } else if (received == 0) {
      return false;
    } else if (errno == EAGAIN) {
      if (!WaitFor(socket, POLLIN, deadline_ns)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

namespace {

AddressBytes BytesOf(const sockaddr* address) {
  AddressBytes bytes = {};
  if (address->sa_family == AF_INET6) {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
  } else if (address->sa_family == AF_INET) {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  }
  return bytes;
}

}  // namespace

std::vector<AddressBytes> AddressesOf(const std::string& host) {
  std::vector<AddressBytes> result;
  std::string ignored;
  const Addresses addresses = host.empty() ? nullptr : Resolve(host, 0, 0, &ignored);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next)
    result.push_back(BytesOf(address->ai_addr));
  return result;
}

bool IsLoopbackAddress(const AddressBytes& address) {
  constexpr AddressBytes kIpv6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  constexpr uint8_t kIpv4[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};
  return address == kIpv6 || std::memcmp(address.data(), kIpv4, sizeof(kIpv4)) == 0;
}

AddressBytes PeerBytes(const Descriptor& socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return BytesOf(reinterpret_cast<const sockaddr*>(&address));
}

std::string PeerAddress(const Descriptor& socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(socket.get(), any, &bytes) != 0 ||
      getnameinfo(any, bytes, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return fmt::format("{}:{}", host, port);
}

}  // namespace larder::rdma::proof
