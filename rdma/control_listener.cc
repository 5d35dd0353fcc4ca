// Finding each other: listening on, and connecting to, a name (rdma/local_socket.h).
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/control_channel.h"
#include "rdma/control_message.h"
#include "rdma/fd_watch.h"
#include "rdma/local_socket.h"

namespace larder::rdma {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(10);

Descriptor NewSocket(const std::string& name) {
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw Error("control channel {}: no socket: {}", name, std::strerror(errno));
  return fd;
}

// The kernel guards no abstract name, so both ends look at who the other is. Root may serve anybody.
bool Trusted(const ucred& peer) { return peer.uid == geteuid() || peer.uid == 0; }

}  // namespace

struct ControlListener::State {
  std::string name;
  size_t peers = 1;
  LocalListener listener;
  std::vector<pid_t> accepted;
  std::optional<FdWatch> refuser;  // after the last peer has come

  Descriptor AcceptOne() const {
    return Descriptor(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }
  std::optional<int> RefuseOne() const {
    const Descriptor one_too_many = AcceptOne();
    if (one_too_many) {
      internal::Refuse(one_too_many.get(),
                       fmt::format("it already has its {} peer{} (pid {}); stop that first, or give this run "
                                   "a name of its own",
                                   peers, peers == 1 ? "" : "s", fmt::join(accepted, ", ")));
    }
    return FdWatch::kUntilReadable;
  }
};

ControlListener::ControlListener(std::string name, size_t peers) : state_(std::make_unique<State>()) {
  if (peers == 0) throw Error("control channel {}: a listener without peers", name);
  state_->peers = peers;
  state_->listener = LocalListener("control channel", name, SOCK_SEQPACKET,
                                   peers == kAnyPeers ? 16 : static_cast<int>(peers) + 8);
  state_->name = std::move(name);
}

ControlListener::~ControlListener() = default;

ControlChannel ControlListener::Accept(int timeout_ms) {
  State& state = *state_;
  if (state.accepted.size() == state.peers) {
    throw Error("control channel {}: all its {} peers have come", state.name, state.peers);
  }
  for (;;) {
    if (!internal::WaitReadable(state.listener.fd(), timeout_ms)) {
      if (state.peers == kAnyPeers) {
        throw Error("control channel {}: nobody came in {} ms: start the other socket's process too",
                    state.name, timeout_ms);
      }
      throw Error("control channel {}: {} of {} peers came in {} ms: start the other socket's process too",
                  state.name, state.accepted.size(), state.peers, timeout_ms);
    }
    Descriptor fd = state.AcceptOne();
    if (!fd) continue;  // it left again
    const ucred peer = PeerOf(fd.get());
    if (!Trusted(peer)) {
      internal::Refuse(fd.get(), fmt::format("it belongs to user {}, not {}", geteuid(), peer.uid));
      continue;
    }
    state.accepted.push_back(peer.pid);
    if (state.accepted.size() == state.peers) {
      state.refuser.emplace(state.listener.fd(), [this_state = &state] { return this_state->RefuseOne(); });
    }
    return ControlChannel(std::move(fd), state.name, peer.pid);
  }
}

ControlChannel Connect(const std::string& name, int timeout_ms) {
  const LocalAddress address = AddressOf(name);
  const int64_t deadline_ns = NowNs() + int64_t{timeout_ms} * 1'000'000;
  for (;;) {
    Descriptor fd = NewSocket(name);
    if (connect(fd.get(), address.get(), address.bytes) == 0) {
      const ucred peer = PeerOf(fd.get());
      if (!Trusted(peer)) {
        throw Error("control channel {}: pid {} has it, of user {}, not {}: start both processes as one user",
                    name, peer.pid, peer.uid, geteuid());
      }
      return ControlChannel(std::move(fd), name, peer.pid);
    }
    // nobody listens yet, or its queue is full
    if (errno != ECONNREFUSED && errno != ENOENT && errno != EAGAIN && errno != EINTR) {
      throw Error("control channel {}: {}", name, std::strerror(errno));
    }
    if (timeout_ms != kNoTimeout && NowNs() > deadline_ns) {
      throw Error(
          "control channel {}: nobody listens there after {} ms: start the process of the socket that "
          "has this name, from the same manifest, on this server",
          name, timeout_ms);
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

}  // namespace larder::rdma
