// Both ends' connection by name: listening and connecting (rdma/common/local_endpoint.h).
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "rdma/common/fd_watch.h"
#include "rdma/common/local_endpoint.h"
#include "rdma/common/retry.h"
#include "rdma/control/control_channel.h"
#include "rdma/control/control_message.h"
#include "rdma/proof/link_gate.h"
#include "rdma/proof/link_warning.h"
#include "rdma/proof/tcp_connection.h"

namespace larder::rdma::inline control {
namespace {

constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr int kBacklog = 128;  // connections that wait while no Accept() runs

Descriptor NewSocket(const std::string& name) {
  Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw Error("control channel {}: no socket: {}", name, std::strerror(errno));
  return fd;
}

// The kernel does not protect abstract names, so each end checks the other's user. Root is always
// trusted.
bool Trusted(const ucred& peer) { return peer.uid == geteuid() || peer.uid == 0; }

// A hint for a user who looks among abstract names because the units' folder belongs to another
// user.
const char* UnitHasIt(const std::string& name) {
  struct stat found = {};
  const std::string file = std::string(kRuntimeFolder) + "/" + FileOfName(name);
  return stat(file.c_str(), &found) == 0 || errno == EACCES
             ? "; units work with processes of their own user: runuser -u larder -- larder ..."
             : "";
}

}  // namespace

struct ControlListener::State {
  std::string name;
  size_t peers = 1;
  LocalListener listener;
  std::vector<pid_t> accepted;
  std::optional<FdWatch> refuser;  // exists once the last peer has connected

  Descriptor AcceptOne() const {
    return Descriptor(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }
  // *who gets the peer's pid. Returns why the peer is refused, by its user; empty: it is admitted.
  std::string Admit(const Descriptor& came, std::string* who) const {
    const ucred peer = PeerOf(came.get());
    *who = fmt::format("pid {}", peer.pid);
    if (Trusted(peer)) return {};
    SendRefusal(came.get(), fmt::format("it belongs to user {}, not {}", geteuid(), peer.uid));
    return fmt::format("belongs to user {}, not {}", peer.uid, geteuid());
  }
  // Counts one more peer. After the last one, further connections are refused.
  ControlChannel Take(Descriptor connection) {
    const ucred peer = PeerOf(connection.get());
    accepted.push_back(peer.pid);
    if (accepted.size() == peers) refuser.emplace(listener.fd(), [this] { return RefuseOne(); });
    return ControlChannel(std::move(connection), name, peer.pid, /*listens=*/true);
  }
  std::optional<int> RefuseOne() const {
    const Descriptor one_too_many = AcceptOne();
    if (!one_too_many && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
      std::this_thread::sleep_for(kAcceptPause);  // no descriptors: the listener stays readable
    std::string who;
    if (one_too_many && Admit(one_too_many, &who).empty()) {
      SendRefusal(
          one_too_many.get(),
          fmt::format("it already has its {} peer{} (pid {}); stop that first, or give this run a "
                      "name of its own",
                      peers, peers == 1 ? "" : "s", fmt::join(accepted, ", ")));
    }
    return FdWatch::kUntilReadable;
  }
};

ControlListener::ControlListener(std::string name, size_t peers)
    : state_(std::make_unique<State>()) {
  if (peers == 0) throw Error("control channel {}: a listener without peers", name);
  state_->peers = peers;
  state_->listener = LocalListener("control channel", name, SOCK_SEQPACKET, kBacklog);
  state_->name = std::move(name);
}

ControlListener::~ControlListener() = default;

ControlChannel ControlListener::Accept(int timeout_ms) {
  State& state = *state_;
  if (state.accepted.size() == state.peers) {
    throw Error("control channel {}: all of its {} peers have connected", state.name, state.peers);
  }
  for (;;) {
    if (!WaitReadable(state.listener.fd(), timeout_ms)) {
      if (state.peers == kAnyPeers) {
        throw Error(
            "control channel {}: no process connected in {} ms: start the other socket's process "
            "too",
            state.name, timeout_ms);
      }
      throw Error(
          "control channel {}: {} of {} peers connected in {} ms: start the other socket's process "
          "too",
          state.name, state.accepted.size(), state.peers, timeout_ms);
    }
    Descriptor fd = state.AcceptOne();
    if (!fd) {  // the peer has left again, or there are no descriptors
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        std::this_thread::sleep_for(kAcceptPause);
      continue;
    }
    std::string who;
    if (state.Admit(fd, &who).empty()) return state.Take(std::move(fd));
  }
}

LinkGate::Setup ShmGateSetup(const std::string& what, const LinkKey& key) {
  LinkGate::Setup setup;
  setup.what = what;
  setup.kind = ConnectionKind::kShm;
  setup.key = &key;
  setup.hello_bytes = sizeof(Message);
  return setup;
}

// The guest has proven that it knows the key, if there is one. Returns false if it was refused; it
// was then told why.
bool AnswerGuest(const Guest& guest, const Hello& mine, uint64_t session, ControlChannel& channel,
                 Hello* theirs, std::string* why) {
  Message came, answer;
  std::memcpy(static_cast<void*>(&came), guest.hello.data(), sizeof(came));
  std::string refusal;
  *why = CheckHello(came, mine, channel, &refusal);
  *theirs = came.hello;
  if (refusal.empty() && session != 0 && came.hello.session != session)
    *why = refusal = kOtherSession;
  if (!refusal.empty()) {
    SendRefusal(channel.fd(), refusal);
    return false;
  }
  answer.hello = mine;
  guest.session.Seal(kListenerHello, answer);
  SendMessage(channel.fd(), answer);
  return true;
}

ControlChannel ControlListener::AcceptHello(const Hello& mine, int timeout_ms, const LinkKey& key,
                                            uint64_t* session, int stop_fd) {
  State& state = *state_;
  const std::string what = "control channel " + state.name;
  LinkGate::Setup setup = ShmGateSetup(what, key);
  setup.listener = state.listener.fd();
  setup.stop_fd = stop_fd;
  setup.admit = [&](const Descriptor& came, std::string* who) { return state.Admit(came, who); };
  LinkGate gate(std::move(setup));
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  for (std::string last;;) {
    std::optional<Guest> guest = gate.Next(deadline_ns);
    if (!guest) {
      if (gate.stopped())
        throw Error("{}: stopped{}{}", what, last.empty() ? "" : "; last: ", last);
      if (!last.empty()) throw Error("{}: {}", what, last);
      throw Error(
          "{}: no process of this cluster connected in {} ms{}: start the other socket's process "
          "too",
          what, timeout_ms,
          gate.last().empty() ? "" : fmt::format(" (last refused: {})", gate.last()));
    }
    if (HasLeft(guest->connection.get())) continue;
    const ucred peer = PeerOf(guest->connection.get());
    ControlChannel channel(std::move(guest->connection), state.name, peer.pid, /*listens=*/true);
    Hello theirs;
    std::string why;
    if (!AnswerGuest(*guest, mine, session == nullptr ? 0 : *session, channel, &theirs, &why)) {
      if (why == kOtherSession) continue;
      last = why;
      WarnOfLink(LinkWarning::kDisagreement, fmt::format("{}: {}", what, why));
      continue;
    }
    if (session != nullptr) *session = theirs.session;
    const std::string peer_name = channel.peer_name();
    channel = state.Take(std::move(channel.fd_));
    channel.peer_name_ = peer_name;
    return channel;
  }
}

// The listener's half of ExchangeHello(), for a channel that was accepted without a hello.
Hello ControlChannel::AnswerHello(const Hello& mine, int timeout_ms, const LinkKey& key) {
  const std::string before = peer();
  LinkGate::Setup setup = ShmGateSetup("control channel " + name_, key);
  setup.step_ms = timeout_ms < 0 ? std::numeric_limits<int>::max() : timeout_ms;
  LinkGate gate(std::move(setup));
  gate.Add(std::move(fd_), before);
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  std::optional<Guest> guest;
  while (!guest && gate.pending() > 0 && LeftMs(deadline_ns) > 0)
    guest = gate.Next(std::min(deadline_ns, DeadlineNs(100)));
  if (!guest) {
    if (!gate.last().empty()) throw Error("{}", gate.last());
    if (gate.pending() == 0)
      throw Error("{} ended before hello: its own output says why; start it again", before);
    throw Error("{} sent no hello in {} ms: it hangs or is still loading; see its output", before,
                timeout_ms);
  }
  fd_ = std::move(guest->connection);
  Hello theirs;
  std::string why;
  if (!AnswerGuest(*guest, mine, 0, *this, &theirs, &why)) throw Error("{}", why);
  return theirs;
}

ControlChannel Connect(const std::string& name, int timeout_ms) {
  const LocalAddress address = AddressOf(name);
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  RetryPause pause;
  for (;;) {
    Descriptor fd = NewSocket(name);
    if (connect(fd.get(), address.get(), address.bytes) == 0) {
      const ucred peer = PeerOf(fd.get());
      if (!Trusted(peer)) {
        throw Error(
            "control channel {}: pid {} has it, of user {}, not {}: start both processes as one "
            "user",
            name, peer.pid, peer.uid, geteuid());
      }
      return ControlChannel(std::move(fd), name, peer.pid, /*listens=*/false);
    }
    // no process listens yet, or its queue is full
    if (errno != ECONNREFUSED && errno != ENOENT && errno != EAGAIN && errno != EINTR) {
      throw Error("control channel {}: {}", name, std::strerror(errno));
    }
    if (LeftMs(deadline_ns) == 0) {
      throw Error(
          "control channel {}: no process listens there after {} ms: start the process of the "
          "socket that has this name, from the same manifest, on this server{}",
          name, timeout_ms, address.path.empty() ? UnitHasIt(name) : "");
    }
    pause.Sleep(LeftMs(deadline_ns));
  }
}

}  // namespace larder::rdma::control
