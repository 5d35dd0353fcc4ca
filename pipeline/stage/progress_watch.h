// ProgressWatch: decides whether a loop is alive from its progress, whether it may be idle, and the
// time. It reads no clock, so tests need not wait. One object per loop, asked repeatedly by one
// thread.
#pragma once

#include <cstdint>

#include "base/pulse.h"
#include "pipeline/stage/socket_status.h"

namespace larder::pipeline::inline stage {

class ProgressWatch {
 public:
  // A loop without progress for patience_ns counts as hung. 0: never.
  explicit ProgressWatch(int64_t patience_ns) : patience_ns_(patience_ns) {}

  // False if the loop was not idle, and `progress` was the same, for patience_ns.
  bool Alive(uint64_t progress, bool idle, int64_t now_ns) {
    if (since_ns_ < 0 || idle || progress != progress_) {
      since_ns_ = now_ns;
      progress_ = progress;
      return true;
    }
    return patience_ns_ == 0 || now_ns - since_ns_ < patience_ns_;
  }
  // For a socket's frames: idle if all that were started have finished.
  bool Alive(const SocketStatus& status, int64_t now_ns, bool excused = false) {
    const uint64_t finished = status.frames_finished.load(std::memory_order_relaxed);
    const uint64_t started = status.frames_started.load(std::memory_order_relaxed);
    return Alive(started + finished, excused || started <= finished, now_ns);
  }
  bool Alive(const Pulse& pulse, int64_t now_ns) {
    return Alive(pulse.beats(), pulse.resting(), now_ns);
  }

 private:
  int64_t patience_ns_;
  uint64_t progress_ = 0;
  int64_t since_ns_ = -1;
};

}  // namespace larder::pipeline::stage
