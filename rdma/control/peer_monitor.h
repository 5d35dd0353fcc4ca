// PeerMonitor: a thread that sleeps in poll() on a ControlChannel, from WaitReady() until the end;
// both ends have one. If the peer ends, on purpose (Bye) or not (the kernel closes its socket,
// however the process died), the monitor reports it within milliseconds. If the peer's signs of
// life stop (SIGSTOP, a debugger, a machine that swaps heavily), it reports it within two seconds.
// The data path, which may be spinning on a flag that will never come, is not involved; so a data
// path that hangs in a living process is not noticed here.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "rdma/common/farewell.h"
#include "rdma/common/fd_watch.h"
#include "rdma/control/control_channel.h"

namespace larder::rdma::inline control {

inline constexpr int kPeerLostExitCode = 75;  // EX_TEMPFAIL: start both processes again

// Each end sends a sign of life four times per second. On 2 cores a sleeping thread of normal
// priority woke at most 7 ms late on a quiet machine, 0.06 s beside 8 busy threads and 0.9 s beside
// 128, so a peer is given two seconds.
inline constexpr int kAliveEveryMs = 250;
inline constexpr int kSilenceMs = 2000;

enum class PeerEnd {
  kGoodbye,
  kGone,     // its process has ended, or sent a packet that Larder does not send
  kSilent,   // its process exists, but has sent no sign of life for kSilenceMs
  kStopped,  // its process has been told to end, in the middle
};

// Called at most once, on the monitor's thread.
using PeerLostHandler = std::function<void(pid_t pid, PeerEnd how)>;

// What a program does when its peer is lost. After a goodbye it does nothing. Otherwise it prints
// "larder: error: socket NAME (pid N) is gone; stopping", or "... has not answered for 2.0 s;
// stopping", or, without "error: ", "... was stopped; stopping", and calls _exit(75), without
// destructors, since other threads still spin. If the peer was stopped, this process says farewell
// to its other peers first: it ends for the same reason.
PeerLostHandler StopWhenPeerIsLost(const ControlChannel& channel);
// The same, at once, for a peer of that name. who, reason: as the line has them.
[[noreturn]] void StopAsPeerIsLost(const std::string& name, const std::string& who,
                                   const std::string& reason, bool stopped);
// Replaces the printing; set at most once, before the first monitor. The function may not wait for
// a lock that another thread holds. peer: the socket's name; line: the text without "larder: error:
// " and line end; stopped: it is no error.
using SayPeerLost = void (*)(const std::string& peer, const std::string& reason,
                             const std::string& line, bool stopped);
void SetSayPeerLost(SayPeerLost say);

class PeerMonitor {
 public:
  // The channel must outlive the monitor, and from now on only the monitor reads from it. on_lost
  // must not destroy the monitor, and is not called once this process has said farewell: it is
  // about to end, and a peer that ends meanwhile does so because of it.
  explicit PeerMonitor(ControlChannel& channel)
      : PeerMonitor(channel, StopWhenPeerIsLost(channel)) {}
  PeerMonitor(ControlChannel& channel, PeerLostHandler on_lost);
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  bool peer_ended() const { return ended_.load(std::memory_order_acquire); }  // on purpose or not

 private:
  std::optional<int> Watch();
  std::optional<PeerEnd> Read();

  const int fd_;
  const pid_t pid_;
  PeerLostHandler on_lost_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> said_farewell_{false};
  // The watch's thread only:
  int64_t woken_ns_;
  int64_t silent_ns_ = 0;
  int64_t next_alive_ns_ = 0;
  FdWatch watch_;  // its thread uses those above
  const Farewell farewell_;
};

}  // namespace larder::rdma::control
