// PeerMonitor: one thread asleep in poll() on a ControlChannel, from after WaitReady() until the end. When
// the peer ends, on purpose (Bye) or not (its socket closes with the process, however it died), it says so
// within milliseconds. The data path, which may be spinning on a flag that will never come, takes no part in
// this.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>

#include "rdma/control_channel.h"
#include "rdma/fd_watch.h"

namespace larder::rdma {

inline constexpr int kPeerLostExitCode = 75;  // EX_TEMPFAIL: start both again

// Called at most once, on the monitor's thread. clean: the peer said Bye.
using PeerLost = std::function<void(pid_t pid, bool clean)>;

// What a program does about it. Not clean: prints "larder: error: socket NAME (pid N) is gone; stopping" and
// _exit(75), without destructors, since other threads still spin. Clean: nothing.
PeerLost StopWhenPeerIsLost(const ControlChannel& channel);

class PeerMonitor {
 public:
  // The channel must outlive the monitor; nobody else reads from it from now on. on_lost must not destroy the
  // monitor.
  explicit PeerMonitor(ControlChannel& channel) : PeerMonitor(channel, StopWhenPeerIsLost(channel)) {}
  PeerMonitor(ControlChannel& channel, PeerLost on_lost);
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  bool peer_ended() const { return ended_.load(std::memory_order_acquire); }  // either way

 private:
  bool Watch(int fd, pid_t pid);

  PeerLost on_lost_;
  std::atomic<bool> ended_{false};
  FdWatch watch_;  // last: its thread uses the others
};

}  // namespace larder::rdma
