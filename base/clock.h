// Monotonic time. NowNs() is a vDSO call (about 25 ns): allowed at frame borders, not inside a
// step.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace larder {

inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
// NowNs for the counters of frames, which have no sign: a few calls a frame, never inside a step.
inline uint64_t CounterNs() { return static_cast<uint64_t>(NowNs()); }

// Time as something to be handed in, so that what waits and measures can be simulated.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now_ns() { return CounterNs(); }
  virtual void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
};

inline double SecondsSince(int64_t start_ns) {
  return static_cast<double>(NowNs() - start_ns) * 1e-9;
}

}  // namespace larder
