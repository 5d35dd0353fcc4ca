// Pulse: a loop's sign of life for a watchdog. It counts the loop's rounds and says whether the
// loop is waiting for something else (for work, for another socket), in which case the count need
// not grow. One thread at a time writes it, any thread reads it. Zeroed memory is a valid Pulse.
#pragma once

#include <atomic>
#include <cstdint>

namespace larder {

class Pulse {
 public:
  // relaxed everywhere: these are counters, they publish no other data
  void Beat() { beats_.store(beats() + 1, std::memory_order_relaxed); }
  uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }
  bool resting() const { return resting_.load(std::memory_order_relaxed) != 0; }

  // The loop rests as long as a Rest exists. Rests nest.
  class Rest {
   public:
    explicit Rest(Pulse& pulse) : pulse_(pulse) { Add(1); }
    ~Rest() {
      pulse_.Beat();  // before the rest ends, so that a watchdog that looks at this moment sees a
                      // new count
      Add(-1);
    }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    void Add(int32_t n) {
      pulse_.resting_.store(pulse_.resting_.load(std::memory_order_relaxed) + n,
                            std::memory_order_relaxed);
    }
    Pulse& pulse_;
  };

 private:
  std::atomic<uint64_t> beats_{0};
  std::atomic<int32_t> resting_{0};
};

}  // namespace larder
