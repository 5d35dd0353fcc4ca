// Pulse: a loop's sign of life for a watchdog: how often it went round, and whether it waits for somebody
// else just now (for work, for another socket) and need not go round. Written by the loop's one thread, read
// by any. Zeroed memory is one.
#pragma once

#include <atomic>
#include <cstdint>

namespace larder {

class Pulse {
 public:
  // relaxed everywhere: counters, nothing is published by them
  void Beat() { beats_.store(beats() + 1, std::memory_order_relaxed); }
  uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }
  bool resting() const { return resting_.load(std::memory_order_relaxed) != 0; }

  // While one lives the loop rests. They nest.
  class Rest {
   public:
    explicit Rest(Pulse& pulse) : pulse_(pulse) { Add(1); }
    ~Rest() {
      pulse_.Beat();  // before it is expected to: who looks sees that it went on
      Add(-1);
    }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    void Add(int32_t n) {
      pulse_.resting_.store(pulse_.resting_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    Pulse& pulse_;
  };

 private:
  std::atomic<uint64_t> beats_{0};
  std::atomic<int32_t> resting_{0};
};

}  // namespace larder
