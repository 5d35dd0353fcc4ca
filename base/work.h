// Work: what it may still cost to read untrusted input. Whatever does more than a constant amount
// of work for a byte that came from a client, a model or a file says so where it does it
// (SpendWork, HoldWork), so that a bound counts the cost itself, not something that usually goes
// with it. One Work is a thread's at a time, on its stack, around the reading of one request;
// within it every parser and compiler below draws on the same limits.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.h"

namespace larder {

// Thrown instead of an Error where the limits of steps say so: the same reading may be done again
// where it keeps nobody waiting. Not an Error, so that nothing takes it for a fault of the input.
struct TakesLong {};
// Thrown when nobody waits for the result any more.
struct NotWanted {};

class TooMuchWork : public Error {
  using Error::Error;
};

struct WorkLimits {
  // A step is the work on one small thing: a JSON value that is copied or compared, a node of a
  // grammar, some 32 bytes of text. 5 to 150 ns, mostly some 70: the default is a third of a
  // second.
  uint64_t steps = 4'000'000;
  // Of what is made and kept until the reading ends.
  uint64_t bytes = uint64_t{64} << 20;
  bool may_take_long = true;                  // false: TakesLong when the steps are spent
  const std::atomic<bool>* wanted = nullptr;  // NotWanted once it is false; outlives the Work
};

class Work {
 public:
  explicit Work(const WorkLimits& limits = {})
      : steps_(limits.steps),
        bytes_(limits.bytes),
        limits_(limits),
        outer_(std::exchange(current_, this)) {}
  ~Work() { current_ = outer_; }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // This thread's innermost; null: there is none, nothing is counted.
  static Work* Current() { return current_; }

  // Throws TooMuchWork, TakesLong or NotWanted.
  void Spend(uint64_t steps) {
    if (limits_.wanted != nullptr && !limits_.wanted->load(std::memory_order_relaxed))
      throw NotWanted();
    if (steps > steps_) {
      steps_ = 0;
      if (!limits_.may_take_long) throw TakesLong();
      throw TooMuchWork("it takes too much work: more than {} steps", limits_.steps);
    }
    steps_ -= steps;
  }
  // Throws TooMuchWork.
  void Hold(uint64_t bytes) {
    if (bytes > bytes_) {
      bytes_ = 0;
      throw TooMuchWork("it takes too much memory: more than {} MiB", limits_.bytes >> 20);
    }
    bytes_ -= bytes;
  }
  uint64_t spent() const { return limits_.steps - steps_; }
  uint64_t held() const { return limits_.bytes - bytes_; }

 private:
  static constinit inline thread_local Work* current_ = nullptr;
  uint64_t steps_, bytes_;  // left
  const WorkLimits limits_;
  Work* const outer_;
};

// Limits what is done in its scope, unless a Work around it does.
class OwnWork {
 public:
  OwnWork() {
    if (Work::Current() == nullptr) work_.emplace();
  }

 private:
  std::optional<Work> work_;
};

inline void SpendWork(uint64_t steps) {
  if (Work* work = Work::Current()) work->Spend(steps);
}
inline void HoldWork(uint64_t bytes) {
  if (Work* work = Work::Current()) work->Hold(bytes);
}
// Of a text that is read, copied or compared once.
constexpr uint64_t StepsOfText(uint64_t bytes) { return 1 + bytes / 32; }

}  // namespace larder
