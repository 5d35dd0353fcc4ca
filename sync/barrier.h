// TwoLevelBarrier: all threads of one socket meet. Threads of one L3 group meet first (25 ns a hand-over),
// one representative of each group crosses to the others (100 ns), and each representative releases its own
// group. Two threads to kExchangeThreads in one group take the flat form: each says "here" on its own line
// and reads the others' lines, one hand-over deep, with no release. Epochs only count up; nothing is reset.
// Wait() does not allocate.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sync/epoch_flag.h"

namespace larder::sync {

class TwoLevelBarrier {
 public:
  // group_of_thread[t] is any number that names thread t's L3 group. Thread 0 is the root: it leaves the
  // barrier first, which makes a barrier also a cheap join for the thread that commands the others.
  TwoLevelBarrier(std::span<const int> group_of_thread, WaitPolicy policy);

  // Called by every thread with its own number; returns when all have called it as often as this one.
  // What any thread wrote before its Wait is visible to every thread after it.
  void Wait(int thread);

  int threads() const { return static_cast<int>(seats_.size()); }
  int groups() const { return static_cast<int>(groups_); }

  // Up to this many threads in one group exchange flags, each reading all others; beyond, fan-in and release.
  static constexpr size_t kExchangeThreads = 4;

 private:
  // What thread t needs in Wait, written only by t (epoch) or before the threads start.
  struct alignas(kFalseSharingBytes) Seat {
    uint32_t epoch = 0;
    EpochFlag* arrive = nullptr;         // this thread's own flag
    EpochFlag* const* fan_in = nullptr;  // flags that this thread waits for before it arrives itself
    uint32_t fan_in_count = 0;
    EpochFlag* await_release = nullptr;   // null for the root
    EpochFlag* group_release = nullptr;   // what a representative signals to its group; null for members
    EpochFlag* across_release = nullptr;  // what the root signals to the representatives; null for others
    bool exchange = false;
  };

  void WaitAll(EpochFlag* const* flags, uint32_t count, uint32_t epoch);

  WaitPolicy policy_;
  size_t groups_ = 0;
  std::vector<Seat> seats_;
  std::unique_ptr<EpochFlag[]> flags_;  // arrive flag per thread, then release per group, then the root's
  std::vector<std::vector<EpochFlag*>> fan_ins_;  // backing of Seat::fan_in
};

}  // namespace larder::sync
