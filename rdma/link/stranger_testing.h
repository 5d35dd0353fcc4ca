// Test support: strangers that connect to a listener, as fast as one thread can make them. Included
// by tests only.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "rdma/link/frame_link.h"
#include "rdma/proof/link_proof.h"
#include "rdma/proof/tcp_connection.h"

namespace larder::rdma::inline link {

inline ConnectionKind KindOfTransport(Transport transport) {
  return transport == Transport::kSharedMemory ? ConnectionKind::kShm
         : transport == Transport::kTcp        ? ConnectionKind::kTcp
                                               : ConnectionKind::kVerbs;
}

// A plain connection to an endpoint's listener, without the proof and hello of ConnectLink.
inline Descriptor ConnectRaw(const LinkEndpoint& endpoint) {
  if (endpoint.transport != Transport::kSharedMemory) {
    std::string why;
    return TryConnectTcp(endpoint.host, endpoint.port, "", DeadlineNs(1000), &why);
  }
  const std::string name = "larder-link-" + endpoint.name;
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {AF_UNIX, {}};
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) fd.Reset();
  return fd;
}

// Makes a few hundred connections per second. Each is silent, sends a byte of a greeting now and
// then, sends a greeting and then nothing, sends bytes that are not a greeting, sends a greeting
// and a proof without the key, or closes at once.
class Strangers {
 public:
  explicit Strangers(LinkEndpoint endpoint)
      : endpoint_(std::move(endpoint)), thread_([this] { Run(); }) {
    while (count_ < 8) std::this_thread::yield();  // some connect before the test's own peers
  }
  ~Strangers() {
    stop_ = true;
    thread_.join();
  }
  size_t count() const { return count_; }

 private:
  void Run() {
    std::deque<Descriptor> held;
    const Prover prover(LinkKey::Open(), KindOfTransport(endpoint_.transport));
    const auto* greeting = reinterpret_cast<const char*>(&prover.greeting());
    for (size_t n = 0; !stop_; ++n) {
      Descriptor fd = ConnectRaw(endpoint_);
      if (fd) {
        const auto say = [&](const void* bytes, size_t count) {
          [[maybe_unused]] const ssize_t sent =
              send(fd.get(), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        };
        const std::string foreign(sizeof(Greeting), 'G');
        if (n % 6 == 2 || n % 6 == 4) say(greeting, sizeof(Greeting));
        if (n % 6 == 3) say(foreign.data(), foreign.size());
        if (n % 6 == 4) say(foreign.data(), sizeof(Mac));
        if (n % 6 != 5) held.push_back(std::move(fd));
        ++count_;
      }
      if (held.size() > 200) held.pop_front();
      for (size_t i = n % 6; i < held.size(); i += 6) {
        [[maybe_unused]] const ssize_t sent =
            send(held[i].get(), greeting, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
    }
  }

  const LinkEndpoint endpoint_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> count_{0};
  std::thread thread_;
};

}  // namespace larder::rdma::link
