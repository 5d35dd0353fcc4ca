// Pool: the pinned threads of one socket. The thread that constructs it is thread 0: it is pinned
// while the pool lives, it alone calls Execute and ForEach, and it takes part in them. The others
// wait for the next frame by the pool's policy. Between Execute's start and its return there is no
// allocation, no lock, and no system call except the futex of a wait that outlasted the policy's
// spin.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sync/barrier.h"
#include "sync/wait.h"
#include "threadpool/program.h"
#include "threadpool/timeline.h"

namespace larder::threadpool {

struct PoolOptions {
  std::vector<CpuId> cpus;           // one per thread; an invalid CpuId leaves its thread unpinned
  std::vector<int> group_of_thread;  // the L3 group of each thread, any numbering; empty: one group
  sync::WaitPolicy wait;
  std::vector<int> package_of_thread = {};  // as group_of_thread; empty: one package
};

class Pool {
 public:
  explicit Pool(PoolOptions options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const;
  int groups() const;  // L3 groups of its threads; each command crosses to each of them once
  const sync::TreeBarrier& barrier() const;  // of the steps with one, and of each command's end
  // One line for each thread that could not be pinned (containers may forbid it); the pool works
  // without.
  const std::vector<std::string>& warnings() const;

  // One line for each thread that was pinned and may now run elsewhere, because its cpuset was
  // changed or its CPU went off-line. Any thread may call it; it takes some microseconds.
  std::vector<std::string> LostPins() const;

  // Each thread t walks per_thread[t]; a step of part p gets frames[p]. Returns when all threads
  // have finished; what they wrote is then visible to the caller. per_thread.size() == threads().
  // `epochs` is the largest epoch_offset in the programs; base_epoch grows by it.
  void Execute(std::span<const Program> per_thread, std::span<void* const> frames, uint32_t epochs);
  void Execute(std::span<const Program> per_thread, void* frame, uint32_t epochs) {
    Execute(per_thread, std::span<void* const>(&frame, 1), epochs);
  }

  // Runs fn(context, t) on each thread t, between frames. Returns when all have finished. fn may
  // not throw.
  void Call(void (*fn)(void* context, int thread), void* context);
  // The same for set-up (first touch, packing): if any threw, rethrows the exception of the lowest
  // thread.
  void ForEach(void (*fn)(void* context, int thread), void* context);

  // The base_epoch of the next Execute.
  uint32_t next_base_epoch() const;
  // Advances base_epoch as an empty Execute of that many epochs would. For tests of flags that get
  // old; call between Executes.
  void SkipEpochs(uint32_t epochs);

  // How long thread 0 has waited for flags, over all Executes: for other threads of its socket, or
  // for another socket. Call between Executes.
  uint64_t waited_ns() const;

  // Records the next `capacity` steps and laps of each thread. 0 switches recording off.
  void EnableTimeline(size_t capacity);
  // What thread t recorded. Valid until the next EnableTimeline; call between Executes.
  std::span<const StepTime> Timeline(int thread) const;
  static double TicksPerSecond();

 private:
  struct Shared;
  struct Worker;
  void Stop();
  std::unique_ptr<Shared> shared_;
};

}  // namespace larder::threadpool
