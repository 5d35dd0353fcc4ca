// PeerMonitor: one thread asleep in poll() on a ControlChannel, from after WaitReady() until the end; both
// ends have one. When the peer ends, on purpose (Bye) or not (its socket closes with the process, however it
// died), it says so within milliseconds; and when the peer's signs of life stop (SIGSTOP, a debugger, a
// machine that swaps to death), within two seconds. The data path, which may be spinning on a flag that will
// never come, takes no part in this; so a data path that hangs in a living process is not noticed here.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "rdma/control/control_channel.h"
#include "rdma/ipc/fd_watch.h"

namespace larder::rdma {

inline constexpr int kPeerLostExitCode = 75;  // EX_TEMPFAIL: start both again

// A sign of life each way four times a second. On 2 cores a sleeping thread of normal priority was late by at
// most 7 ms on a quiet machine, 0.06 s beside 8 busy threads and 0.9 s beside 128, so a peer is given two
// seconds.
inline constexpr int kAliveEveryMs = 250;
inline constexpr int kSilenceMs = 2000;

enum class PeerEnd {
  kGoodbye,
  kGone,    // its process has ended, or sends what no Larder sends
  kSilent,  // it is there, but has given no sign of life for kSilenceMs
};

// Called at most once, on the monitor's thread.
using PeerLost = std::function<void(pid_t pid, PeerEnd how)>;

// What a program does about it. Nothing after a goodbye. Else it prints "larder: error: socket NAME (pid N)
// is gone; stopping", or "... has not answered for 2.0 s; stopping", and _exit(75)s, without destructors,
// since other threads still spin.
// How it says so instead of printing, if it was set: once, before the first monitor. It may not wait for a
// lock that another thread holds. peer: the socket's name; line: without "larder: error: " and line end.
using SayPeerLost = void (*)(const std::string& peer, const std::string& reason, const std::string& line);
void SetSayPeerLost(SayPeerLost say);
PeerLost StopWhenPeerIsLost(const ControlChannel& channel);

class PeerMonitor {
 public:
  // The channel must outlive the monitor; nobody else reads from it from now on. on_lost must not destroy the
  // monitor.
  explicit PeerMonitor(ControlChannel& channel) : PeerMonitor(channel, StopWhenPeerIsLost(channel)) {}
  PeerMonitor(ControlChannel& channel, PeerLost on_lost);
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  bool peer_ended() const { return ended_.load(std::memory_order_acquire); }  // whichever way

 private:
  std::optional<int> Watch();
  std::optional<PeerEnd> Read();

  const int fd_;
  const pid_t pid_;
  PeerLost on_lost_;
  std::atomic<bool> ended_{false};
  // The watch's thread only:
  int64_t woken_ns_;
  int64_t silent_ns_ = 0;
  int64_t next_alive_ns_ = 0;
  FdWatch watch_;  // last: its thread uses the others
};

}  // namespace larder::rdma
