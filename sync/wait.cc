// The slow path of waiting: the system calls that a wait reaches when it outlasts its spin, and the
// calibration of the spin.
#include "sync/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/clock.h"

namespace larder::sync {
namespace internal {

// The futexes are not FUTEX_PRIVATE, because flags also lie in memory that two processes share, and
// one kind of futex keeps one kind of flag. The price is a look-up of the page's identity, paid
// only by a thread that sleeps or wakes a sleeper. Both calls may fail (EAGAIN, EINTR, no sleeper);
// the result is not needed, since the waiter looks at the word again.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

void FutexWakeAll(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace internal

uint32_t SpinIterationsFor(uint64_t ns) {
  static const double pause_ns = [] {
    constexpr int kPauses = 500;
    double best = 1e9;
    for (int round = 0; round < 8; ++round) {  // the best of 8: a preempted round measures the
                                               // scheduler
      const int64_t start = NowNs();
      for (int i = 0; i < kPauses; ++i) CpuPause();
      best = std::min(best, static_cast<double>(NowNs() - start) / kPauses);
    }
    return std::max(best, 0.1);
  }();
  return static_cast<uint32_t>(std::clamp(static_cast<double>(ns) / pause_ns, 1.0, 1e8));
}

}  // namespace larder::sync
