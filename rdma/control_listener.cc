// Finding each other: listening on, and connecting to, a name in the abstract namespace.
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/control_channel.h"
#include "rdma/control_message.h"
#include "rdma/fd_watch.h"

namespace larder::rdma {
namespace {

constexpr size_t kMaxNameBytes = 100;  // sun_path has 108, one of them the leading zero
constexpr auto kRetryPause = std::chrono::milliseconds(10);

struct Address {
  sockaddr_un value = {};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};

// Abstract: the first byte of the path is zero, and its length is what the address's length says.
Address AbstractAddress(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    throw Error("control channel \"{}\": a name of 1 to {} bytes is expected, this one has {}", name,
                kMaxNameBytes, name.size());
  }
  Address address;
  address.value.sun_family = AF_UNIX;
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Descriptor NewSocket(const std::string& name) {
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw Error("control channel {}: no socket: {}", name, std::strerror(errno));
  return fd;
}

ucred PeerOf(const Descriptor& fd) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  return peer;
}

// The kernel guards no abstract name, so both ends look at who the other is. Root may serve anybody.
bool Trusted(const ucred& peer) { return peer.uid == geteuid() || peer.uid == 0; }

// Who listens on a name, from /proc, because asking by connecting would take the place of its real peer.
// Only processes that this user may look into are found.
std::optional<pid_t> OwnerOf(const std::string& name) {
  std::ifstream sockets("/proc/net/unix");
  std::string link;
  for (std::string line; link.empty() && std::getline(sockets, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    if (path == "@" + name && state == "01") link = "socket:[" + inode + "]";  // 01: listens
  }
  if (link.empty()) return std::nullopt;
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    fs::directory_iterator open(process.path() / "fd", ignored), end;
    for (; !ignored && open != end; open.increment(ignored)) {
      std::error_code gone;
      if (fs::read_symlink(open->path(), gone) == link) return std::stoi(pid);
    }
  }
  return std::nullopt;
}

}  // namespace

struct ControlListener::State {
  std::string name;
  size_t peers = 1;
  Descriptor fd;
  std::vector<pid_t> accepted;
  std::optional<FdWatch> refuser;  // after the last peer has come

  Descriptor AcceptOne() const {
    return Descriptor(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
  const Address address = AbstractAddress(name);
  state_->fd = NewSocket(name);
  state_->peers = peers;
  if (bind(state_->fd.get(), address.get(), address.bytes) != 0) {
    if (errno != EADDRINUSE) throw Error("control channel {}: cannot be had: {}", name, std::strerror(errno));
    const std::optional<pid_t> owner = OwnerOf(name);
    throw Error(
        "control channel {}: in use by {}: is this socket already running? Stop it first, or give this "
        "run a name of its own",
        name, owner ? fmt::format("pid {}", *owner) : "another process");
  }
  if (listen(state_->fd.get(), peers == kAnyPeers ? 16 : static_cast<int>(peers) + 8) != 0) {
    throw Error("control channel {}: cannot listen: {}", name, std::strerror(errno));
  }
  state_->name = std::move(name);
}

ControlListener::~ControlListener() = default;

ControlChannel ControlListener::Accept(int timeout_ms) {
  State& state = *state_;
  if (state.accepted.size() == state.peers) {
    throw Error("control channel {}: all its {} peers have come", state.name, state.peers);
  }
  for (;;) {
    if (!internal::WaitReadable(state.fd.get(), timeout_ms)) {
      if (state.peers == kAnyPeers) {
        throw Error("control channel {}: nobody came in {} ms: start the other socket's process too",
                    state.name, timeout_ms);
      }
      throw Error("control channel {}: {} of {} peers came in {} ms: start the other socket's process too",
                  state.name, state.accepted.size(), state.peers, timeout_ms);
    }
    Descriptor fd = state.AcceptOne();
    if (!fd) continue;  // it left again
    const ucred peer = PeerOf(fd);
    if (!Trusted(peer)) {
      internal::Refuse(fd.get(), fmt::format("it belongs to user {}, not {}", geteuid(), peer.uid));
      continue;
    }
    state.accepted.push_back(peer.pid);
    if (state.accepted.size() == state.peers) {
      state.refuser.emplace(state.fd.get(), [this_state = &state] { return this_state->RefuseOne(); });
    }
    return ControlChannel(std::move(fd), state.name, peer.pid);
  }
}

ControlChannel Connect(const std::string& name, int timeout_ms) {
  const Address address = AbstractAddress(name);
  const int64_t deadline_ns = NowNs() + int64_t{timeout_ms} * 1'000'000;
  for (;;) {
    Descriptor fd = NewSocket(name);
    if (connect(fd.get(), address.get(), address.bytes) == 0) {
      const ucred peer = PeerOf(fd);
      if (!Trusted(peer)) {
        throw Error("control channel {}: pid {} has it, of user {}, not {}: start both processes as one user",
                    name, peer.pid, peer.uid, geteuid());
      }
      return ControlChannel(std::move(fd), name, peer.pid);
    }
    // nobody listens yet, or its queue is full
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
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
