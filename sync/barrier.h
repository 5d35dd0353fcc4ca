// TwoLevelBarrier: the barrier of all threads of one socket. Threads of one L3 group meet first (25
// ns per hand-over), then one representative of each group meets the others (100 ns), then each
// representative releases its own group. Two to kExchangeThreads threads in one group take the flat
// form: each signals on its own cache line and reads the others' lines, which is one hand-over deep
// and needs no release. Epochs only count up; nothing is reset. Wait() does not allocate.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sync/epoch_flag.h"

namespace larder::sync {

class TwoLevelBarrier {
 public:
  // group_of_thread[t] is any number that identifies thread t's L3 group. Thread 0 is the root: it
  // leaves the barrier first, so the barrier also serves as a cheap join for the thread that
  // commands the others.
  TwoLevelBarrier(std::span<const int> group_of_thread, WaitPolicy policy);

  // Every thread calls it with its own number. It returns when all threads have called it as often
  // as this one. What any thread wrote before its Wait is visible to every thread after it.
  void Wait(int thread);

  int threads() const { return static_cast<int>(seats_.size()); }
  int groups() const { return static_cast<int>(groups_); }
  // The threads whose arrival this thread itself waits for, ascending.
  std::vector<int> WaitsFor(int thread) const;  // datapath-ok: for inspection

  // Up to this many threads in one group each read all others' flags; more threads use fan-in and
  // release.
  static constexpr size_t kExchangeThreads = 4;

 private:
  // What thread t needs in Wait. Only t writes `epoch`; the rest is written before the threads
  // start.
  struct alignas(kFalseSharingBytes) Seat {
    uint32_t epoch = 0;
    EpochFlag* arrive = nullptr;         // this thread's own flag
    EpochFlag* const* fan_in = nullptr;  // flags that this thread waits for before it arrives
                                         // itself
    uint32_t fan_in_count = 0;
    EpochFlag* await_release = nullptr;   // null for the root
    EpochFlag* group_release = nullptr;   // what a representative signals to its group; null for
                                          // members
    EpochFlag* across_release = nullptr;  // what the root signals to the representatives; null for
                                          // others
    bool exchange = false;
  };

  void WaitAll(EpochFlag* const* flags, uint32_t count, uint32_t epoch);

  WaitPolicy policy_;
  size_t groups_ = 0;
  // datapath-ok: its size never changes
  std::vector<Seat> seats_;
  std::unique_ptr<EpochFlag[]> flags_;  // arrive flag per thread, then release per group, then the
                                        // root's
  std::vector<std::vector<EpochFlag*>> fan_ins_;  // backing of Seat::fan_in
};

}  // namespace larder::sync
