// TreeBarrier: the barrier of all threads of one pool, up a tree and down again. Threads of one L3
// group meet first (25 ns per hand-over), then one representative of each group meets the others of
// its package (100 ns), then one of each package those of the others, so that between packages a
// line moves once for each of them; then each representative releases its own. A pool in one
// package has two such levels. Two to kExchangeThreads threads in one group take the flat form:
// each signals on its own cache line and reads the others' lines, which is one hand-over deep and
// needs no release. Epochs only count up; nothing is reset. Wait() does not allocate.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sync/epoch_flag.h"

namespace larder::sync {

// Who waits for whom. Flags are numbered: thread t's own is t, those with which representatives
// release others follow.
struct BarrierShape {
  struct Seat {
    // datapath-ok: set-up reads it
    std::vector<uint32_t> fan_in;  // flags that this thread waits for before it arrives itself
    int32_t await_release = -1;    // the flag that lets it go on; -1: the root
    // Flags with which it lets others go on, the farthest first.
    std::array<uint32_t, 3> release = {};
    uint32_t releases = 0;
    bool exchange = false;
  };
  // datapath-ok: set-up reads it
  std::vector<Seat> seats;
  size_t flags = 0, groups = 0, packages = 0;

  // group_of_thread[t] is any number that identifies thread t's L3 group, package_of_thread[t] its
  // package; empty: one package. Thread 0 is the root. Throws Error if there are no threads, or not
  // as many packages as threads.
  static BarrierShape Of(std::span<const int> group_of_thread,
                         std::span<const int> package_of_thread);
};

template <typename Machine>
class BasicTreeBarrier {
 public:
  // The root, thread 0, leaves the barrier first, so the barrier also serves as a cheap join for
  // the thread that commands the others.
  BasicTreeBarrier(const BarrierShape& shape, WaitPolicy policy)
      : policy_(policy),
        groups_(shape.groups),
        packages_(shape.packages),
        seats_(shape.seats.size()),
        flags_(new Flag[shape.flags]) {  // datapath-ok: set-up
    for (size_t t = 0; t < seats_.size(); ++t) {
      const BarrierShape::Seat& from = shape.seats[t];
      Seat& seat = seats_[t];
      seat.exchange = from.exchange;
      seat.arrive = &flags_[t];
      seat.fan_in_count = static_cast<uint32_t>(from.fan_in.size());
      seat.fan_in.reset(new Flag*[from.fan_in.size()]);  // datapath-ok: set-up
      for (size_t i = 0; i < from.fan_in.size(); ++i) seat.fan_in[i] = &flags_[from.fan_in[i]];
      if (from.await_release >= 0) seat.await_release = &flags_[from.await_release];
      for (uint32_t i = 0; i < from.releases; ++i) seat.release[i] = &flags_[from.release[i]];
      seat.releases = from.releases;
    }
  }

  // Every thread calls it with its own number. It returns when all threads have called it as often
  // as this one. What any thread wrote before its Wait is visible to every thread after it: each
  // Signal releases what its thread wrote and what that thread has itself acquired, each wait
  // acquires.
  void Wait(int thread) {
    Seat& seat = seats_[static_cast<size_t>(thread)];
    const uint32_t epoch = ++seat.epoch;
    if (seat.exchange) {
      // A neighbour may already be one epoch ahead and have overwritten its flag; the test is "at
      // least", so it still holds. A neighbour cannot be two epochs ahead, since it needs this
      // thread's flag for that.
      seat.arrive->Signal(epoch, policy_.mode);
      WaitAll(seat, epoch);
      return;
    }
    if (seat.fan_in_count != 0) WaitAll(seat, epoch);
    if (seat.await_release != nullptr) {
      seat.arrive->Signal(epoch, policy_.mode);
      seat.await_release->Wait(epoch, policy_);
    }
    for (uint32_t i = 0; i < seat.releases; ++i) seat.release[i]->Signal(epoch, policy_.mode);
  }

  int threads() const { return static_cast<int>(seats_.size()); }
  int groups() const { return static_cast<int>(groups_); }
  int packages() const { return static_cast<int>(packages_); }
  // The threads whose arrival this thread itself waits for, ascending.
  std::vector<int> WaitsFor(int thread) const {  // datapath-ok: for inspection
    const Seat& seat = seats_[static_cast<size_t>(thread)];
    std::vector<int> threads(seat.fan_in_count);  // datapath-ok: for inspection
    for (uint32_t i = 0; i < seat.fan_in_count; ++i)
      threads[i] = static_cast<int>(seat.fan_in[i] - flags_.get());
    return threads;
  }

  // Up to this many threads in one group each read all others' flags; more threads use fan-in and
  // release.
  static constexpr size_t kExchangeThreads = 4;

 private:
  using Flag = BasicEpochFlag<Machine>;
  // What thread t needs in Wait. Only t writes `epoch`; the rest is written before the threads
  // start.
  struct alignas(kFalseSharingBytes) Seat {
    uint32_t epoch = 0;
    uint32_t fan_in_count = 0;
    Flag* arrive = nullptr;  // this thread's own flag
    std::unique_ptr<Flag*[]> fan_in;
    Flag* await_release = nullptr;
    std::array<Flag*, 3> release = {};
    uint32_t releases = 0;
    bool exchange = false;
  };

  void WaitAll(const Seat& seat, uint32_t epoch) {
    // One round loads all flags independently, so that their cache misses overlap. Polling them one
    // after the other would pay a full hand-over for each.
    const bool spin = policy_.mode == WaitPolicy::Mode::kSpin;
    for (uint32_t i = 0; spin || i < Machine::kEagerPolls + policy_.spin_iterations; ++i) {
      bool all = true;
      for (uint32_t f = 0; f < seat.fan_in_count; ++f) all &= seat.fan_in[f]->Reached(epoch);
      if (all) return;
      if (i >= Machine::kEagerPolls) Machine::Pause();
    }
    // The spin is used up: sleep on each flag in turn, without spinning again for each.
    const WaitPolicy sleep{WaitPolicy::Mode::kAdaptive, 0};
    for (uint32_t f = 0; f < seat.fan_in_count; ++f) seat.fan_in[f]->Wait(epoch, sleep);
  }

  WaitPolicy policy_;
  size_t groups_ = 0, packages_ = 0;
  // datapath-ok: its size never changes
  std::vector<Seat> seats_;
  std::unique_ptr<Flag[]> flags_;  // as BarrierShape numbers them
};

using TreeBarrier = BasicTreeBarrier<HostMachine>;

}  // namespace larder::sync
