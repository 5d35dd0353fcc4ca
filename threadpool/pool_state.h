// State that the pool's set-up (pool.cc) and data path (pool_datapath.cc) share. Not for other
// folders.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "sync/barrier.h"
#include "threadpool/pool.h"

namespace larder::threadpool {

// The command that all threads carry out next. Thread 0 writes it, then signals the go flags
// (release); the others read it after their wait (acquire). It is not written again before all have
// met in the join.
struct Command {
  enum class Kind : uint32_t { kExecute, kCall, kStop };
  Kind kind = Kind::kStop;
  uint32_t base_epoch = 0;
  std::span<const Program> programs;
  std::span<void* const> frames;
  void (*call)(void* context, int thread) = nullptr;
  void* context = nullptr;
};

// Each thread's record of itself; only that thread writes it while frames run.
struct alignas(kFalseSharingBytes) Pool::Worker {
  StepTimeline timeline;
  uint64_t waited_ticks = 0;  // spent waiting for flags, over all Executes
};

struct Pool::Shared {
  Shared(const sync::BarrierShape& shape, const sync::WaitPolicy& policy)
      : wait(policy), barrier(shape, policy), workers(shape.seats.size()) {}

  void Publish(const Command& next);  // thread 0: tells the others
  void Run(const Command& now, int thread);
  void WorkerLoop(int thread);  // threads 1..

  template <bool kTimeline>
  void Walk(const Command& now, int thread);

  const sync::WaitPolicy wait;
  sync::TreeBarrier barrier;  // for steps with `barrier`, and for the join at a command's end
  std::vector<Worker> workers;
  std::vector<uint32_t> go_of_thread;     // index into go
  std::unique_ptr<sync::EpochFlag[]> go;  // one per L3 group, so that a command crosses to each
                                          // group once
  uint32_t go_count = 0;
  Command command;
  uint32_t command_epoch = 0;  // thread 0's

  uint32_t base_epoch = 0;
  std::vector<std::thread> threads;  // 1.. at [0]..
  std::vector<std::string> warnings;
  pthread_t owner = {};
  std::vector<CpuId> pinned;        // where each thread is pinned; invalid: it never was
  std::vector<CpuId> old_affinity;  // thread 0's before it was pinned; empty: it is not pinned
};

}  // namespace larder::threadpool
