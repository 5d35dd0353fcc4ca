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
// NowNs as an unsigned number, for counters of frames: a few calls a frame, never inside a step.
inline uint64_t CounterNs() { return static_cast<uint64_t>(NowNs()); }

// A source of time that is passed in, so that tests can simulate code that waits or measures.
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
