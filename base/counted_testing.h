// Test support for fuzzers: what reading an input costs must be counted (base/work.h). Included by
// tests and fuzzers only.
#pragma once

#include <cstdint>
#include <ctime>
#include <string_view>

#include "base/check.h"
#include "base/work.h"

namespace larder {

// Put around the reading of an input, with a Work of its own. Aborts if the reading took far more
// of this thread's time than the steps that were spent explain (in builds with sanitizers a step
// takes a microsecond).
class CountedReading {
 public:
  // steps: the limit of the Work; a small one where many inputs are read.
  explicit CountedReading(std::string_view input, uint64_t steps = 300'000)
      : bytes_(input.size()), begin_(Seconds()), work_({.steps = steps}) {}
  CountedReading(const CountedReading&) = delete;
  CountedReading& operator=(const CountedReading&) = delete;
  ~CountedReading() {
    constexpr double kOfAStep = 10e-6, kAnyway = 0.25;
    const double most = kAnyway + kOfAStep * static_cast<double>(work_.spent() + bytes_);
    const double took = Seconds() - begin_;
    LARDER_CHECK(took <= most, "{} bytes took {:.2f} s, and {} steps were counted", bytes_, took,
                 work_.spent());
  }

 private:
  static double Seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  const size_t bytes_;
  const double begin_;
  const Work work_;
};

}  // namespace larder
