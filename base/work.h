// Work: the limits on what reading untrusted input may cost. Code that does more than constant work
// for a byte from a client, a model or a file reports it where it does it (SpendWork, HoldWork). So
// the cost itself is bounded, not something that usually goes with it. A Work lies on a thread's
// stack around the reading of one request; every parser and compiler called within it draws on the
// same limits.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.h"

namespace larder {

// Thrown instead of an Error if the limits say so (may_take_long = false): the same reading may be
// repeated on a thread where it keeps nobody waiting. Not an Error, so that nothing blames the
// input.
struct TakesLong {};
// Thrown when nobody waits for the result any longer.
struct NotWanted {};

class TooMuchWork : public Error {
  using Error::Error;
};

struct WorkLimits {
  // A step is the work on one small thing: copying or comparing a JSON value, a node of a grammar,
  // 32 bytes of text. It takes 5 to 150 ns, mostly about 70: the default is a third of a second.
  uint64_t steps = 4'000'000;
  // Memory that is made by the reading and kept until it ends.
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

  // The innermost Work of this thread. Null if there is none: then nothing is counted.
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

// A Work for its scope, unless there is one around it already.
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
// The steps of reading, copying or comparing a text once.
constexpr uint64_t StepsOfText(uint64_t bytes) { return 1 + bytes / 32; }

}  // namespace larder
