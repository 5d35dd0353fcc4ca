#include "rdma/peer_monitor.h"

#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "rdma/control_message.h"

namespace larder::rdma {

PeerLost StopWhenPeerIsLost(const ControlChannel& channel) {
  const std::string line = fmt::format("larder: error: {} is gone; stopping\n", channel.peer());
  return [line](pid_t, bool clean) {
    if (clean) return;
    // write, not stdio: whatever thread holds a lock there, this one ends the process
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    _exit(kPeerLostExitCode);
  };
}

PeerMonitor::PeerMonitor(ControlChannel& channel, PeerLost on_lost)
    : on_lost_(std::move(on_lost)),
      watch_(channel.fd(), [this, fd = channel.fd(), pid = channel.peer_pid()] { return Watch(fd, pid); }) {}

bool PeerMonitor::Watch(int fd, pid_t pid) {
  internal::Message message;
  Descriptor unexpected;
  const internal::Received received = internal::Receive(fd, &message, &unexpected, 0);
  if (received == internal::Received::kTimeout) return true;
  const bool clean = received == internal::Received::kMessage && message.kind == internal::MessageKind::kBye;
  if (received == internal::Received::kMessage && !clean) return true;  // nothing else means an end
  ended_.store(true, std::memory_order_release);
  on_lost_(pid, clean);
  return false;
}

}  // namespace larder::rdma
