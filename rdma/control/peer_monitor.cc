#include "rdma/control/peer_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/control/control_message.h"

namespace larder::rdma::inline control {
namespace {

constexpr int64_t kMsNs = 1'000'000;

std::atomic<SayPeerLost> say_peer_lost{nullptr};

void SendKind(int fd, MessageKind kind) {
  Message message;
  message.kind = kind;
  SendMessage(fd, message);
}

}  // namespace

void SetSayPeerLost(SayPeerLost say) { say_peer_lost.store(say); }

void StopAsPeerIsLost(const std::string& name, const std::string& who, const std::string& reason,
                      bool stopped) {
  const std::string line = fmt::format("{} {}; stopping", who, reason);
  if (const SayPeerLost say = say_peer_lost.load()) {
    say(name, reason, line, stopped);
  } else {
    // write, not stdio: another thread may hold stdio's lock, and this one must end the process
    const std::string printed = fmt::format("larder: {}{}\n", stopped ? "" : "error: ", line);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, printed.data(), printed.size());
  }
  if (stopped) SayFarewellsBeforeTheEnd();
  _exit(kPeerLostExitCode);
}

PeerLostHandler StopWhenPeerIsLost(const ControlChannel& channel) {
  return [name = channel.peer_name(), peer = channel.peer()](pid_t, PeerEnd how) {
    if (how == PeerEnd::kGoodbye) return;
    const bool stopped = how == PeerEnd::kStopped;
    const std::string reason = how == PeerEnd::kSilent
                                   ? fmt::format("has not answered for {:.1f} s", kSilenceMs * 1e-3)
                               : stopped ? "was stopped"
                                         : "is gone";
    StopAsPeerIsLost(name, peer, reason, stopped);
  };
}

PeerMonitor::PeerMonitor(ControlChannel& channel, PeerLostHandler on_lost)
    : fd_(channel.fd()),
      pid_(channel.peer_pid()),
      on_lost_(std::move(on_lost)),
      woken_ns_(NowNs()),
      watch_(fd_, [this] { return Watch(); }),
      farewell_([this] {
        said_farewell_.store(true, std::memory_order_release);
        SendKind(fd_, MessageKind::kStopped);
      }) {}

// Reads all messages that have arrived. Returns how the peer ended, if it did.
std::optional<PeerEnd> PeerMonitor::Read() {
  for (;;) {
    Message message;
    Descriptor unexpected;
    switch (ReceiveMessage(fd_, &message, &unexpected, 0)) {
      case Received::kTimeout:
        return std::nullopt;
      case Received::kMessage:
        if (message.kind == MessageKind::kBye) return PeerEnd::kGoodbye;
        if (message.kind == MessageKind::kStopped) return PeerEnd::kStopped;
        silent_ns_ = 0;
        break;
      case Received::kEnded:
      case Received::kForeign:
        return PeerEnd::kGone;
    }
  }
}

std::optional<int> PeerMonitor::Watch() {
  // Time counts as the peer's silence only if this thread woke when it meant to. A process that was
  // itself stopped, alone or with its virtual machine, does not blame the peer.
  const int64_t now_ns = NowNs();
  silent_ns_ += std::min(now_ns - std::exchange(woken_ns_, now_ns), 2 * kAliveEveryMs * kMsNs);
  std::optional<PeerEnd> end = Read();
  if (!end && silent_ns_ >= kSilenceMs * kMsNs) end = PeerEnd::kSilent;
  if (end) {
    ended_.store(true, std::memory_order_release);
    if (!said_farewell_.load(std::memory_order_acquire)) on_lost_(pid_, *end);
    return std::nullopt;
  }
  if (now_ns >= next_alive_ns_) {
    next_alive_ns_ = now_ns + kAliveEveryMs * kMsNs;
    SendKind(fd_, MessageKind::kAlive);  // if the peer is gone or no longer reads, the next wake-up
                                         // sees it
  }
  const int64_t sleep_ns = std::min(next_alive_ns_ - now_ns, kSilenceMs * kMsNs - silent_ns_);
  return static_cast<int>(sleep_ns / kMsNs + 1);
}

}  // namespace larder::rdma::control
