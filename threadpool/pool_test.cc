#include "threadpool/pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "sync/wait_policies_testing.h"
#include "topology/this_machine_testing.h"
#include "topology/topology.h"

namespace larder::threadpool {
namespace {

using sync::EpochFlag;
using sync::kShortSpin;
using sync::kSleepAtOnce;
using sync::WaitPolicy;

PoolOptions Unpinned(size_t threads, const WaitPolicy& wait, std::vector<int> groups = {}) {
  return {std::vector<CpuId>(threads), std::move(groups), wait};
}

// A pipeline over plain (not atomic) cells: in each frame thread t waits for thread t-1's flag,
// adds one to what that thread wrote, writes its own cell, and signals. A missed wait gives a wrong
// cell (and a race for TSan).
struct Chain {
  struct Link {
    Chain* chain;
    int thread;
    uint32_t lap;
  };
  explicit Chain(int threads, uint32_t laps_per_frame, bool with_barrier) : laps(laps_per_frame) {
    cells.assign(threads, 0);
    flags.reset(new EpochFlag[threads]);
    links.resize(threads);
    waits.resize(threads);
    steps.resize(threads);
    for (int t = 0; t < threads; ++t) {
      if (t > 0) waits[t].push_back(&flags[t - 1]);
      links[t].reserve(laps);
      for (uint32_t lap = 0; lap < laps; ++lap) {
        links[t].push_back({this, t, lap});
        Step step;
        step.kernel = &Chain::Kernel;
        step.operand = &links[t].back();
        step.waits = waits[t].data();
        step.wait_count = static_cast<uint32_t>(waits[t].size());
        step.epoch_offset = lap + 1;
        step.signal = &flags[t];
        step.barrier = with_barrier;
        step.kind = static_cast<uint16_t>(10 + t);
        step.layer = static_cast<uint16_t>(lap);
        steps[t].push_back(step);
      }
      programs.push_back({steps[t].data(), static_cast<uint32_t>(steps[t].size())});
    }
  }
  static void Kernel(const void* operand, void* frame) {
    const Link& link = *static_cast<const Link*>(operand);
    const uint64_t number = *static_cast<const uint64_t*>(frame) * link.chain->laps + link.lap;
    auto& cells = link.chain->cells;
    cells[link.thread] = link.thread == 0 ? number * 1000 : cells[link.thread - 1] + 1;
  }
  uint32_t laps;
  std::vector<uint64_t> cells;
  std::unique_ptr<EpochFlag[]> flags;
  std::vector<std::vector<Link>> links;
  std::vector<std::vector<EpochFlag*>> waits;
  std::vector<std::vector<Step>> steps;
  std::vector<Program> programs;
};

// With one lap a frame the flags alone order the chain; with more laps a barrier keeps thread t-1
// from overwriting its cell before t has read it.
void RunChain(Pool& pool, int frames, uint32_t laps) {
  Chain chain(pool.threads(), laps, laps > 1);
  for (int t = 0; t < pool.threads(); ++t) chain.flags[t].Signal(pool.next_base_epoch());
  for (uint64_t frame = 0; frame < static_cast<uint64_t>(frames); ++frame) {
    pool.Execute(chain.programs, &frame, laps);
    for (int t = 0; t < pool.threads(); ++t) {
      ASSERT_EQ(chain.cells[t], (frame * laps + laps - 1) * 1000 + t)
          << "frame " << frame << " thread " << t;
    }
  }
}

struct Case {
  std::string name;
  size_t threads;
  std::vector<int> groups;
  WaitPolicy wait;
};
void PrintTo(const Case& shape, std::ostream* out) { *out << shape.name; }
class PoolShapes : public testing::TestWithParam<Case> {};
TEST_P(PoolShapes, FlagsOrderTheSteps) {
  Pool pool(Unpinned(GetParam().threads, GetParam().wait, GetParam().groups));
  RunChain(pool, 200, 1);
}
TEST_P(PoolShapes, BarriersSeparateTheLaps) {
  Pool pool(Unpinned(GetParam().threads, GetParam().wait, GetParam().groups));
  RunChain(pool, 60, 3);
}
INSTANTIATE_TEST_SUITE_P(
    Overcommitted, PoolShapes,
    testing::Values(Case{"one", 1, {}, kShortSpin}, Case{"two", 2, {}, kShortSpin},
                    Case{"twoSpinning", 2, {}, {WaitPolicy::Mode::kSpin, 0}},
                    Case{"five", 5, {}, kShortSpin}, Case{"eight", 8, {}, kShortSpin},
                    Case{"eightSleeping", 8, {}, kSleepAtOnce},
                    Case{"eightInThreeGroups", 8, {0, 0, 0, 1, 1, 1, 2, 2}, kShortSpin},
                    Case{"eightInterleaved", 8, {4, 2, 4, 2, 4, 2, 4, 2}, kSleepAtOnce}),
    [](const auto& shape) { return shape.param.name; });

TEST(Pool, BaseEpochGrowsByEpochsAndNullKernelsSignal) {
  Pool pool(Unpinned(2, kShortSpin));
  EpochFlag flag;
  EpochFlag* waits[] = {&flag};
  Step signals, waiter;
  signals.signal = &flag;
  signals.epoch_offset = 4;
  waiter.waits = waits;
  waiter.wait_count = 1;
  waiter.epoch_offset = 4;
  const Program programs[] = {{&waiter, 1}, {&signals, 1}};
  EXPECT_EQ(pool.next_base_epoch(), 0u);
  pool.Execute(programs, nullptr, 4);
  EXPECT_EQ(flag.Load(), 4u);
  EXPECT_EQ(pool.next_base_epoch(), 4u);
  pool.Execute(programs, nullptr, 4);
  EXPECT_EQ(flag.Load(), 8u);
}

TEST(Pool, EmptyProgramsReturn) {
  Pool pool(Unpinned(3, kShortSpin));
  const std::vector<Program> programs(3);
  for (int i = 0; i < 10; ++i) pool.Execute(programs, nullptr, 1);
  EXPECT_EQ(pool.next_base_epoch(), 10u);
}

TEST(Pool, ForEachRunsOnceOnEveryThread) {
  Pool pool(Unpinned(5, kShortSpin));
  struct Seen {
    std::vector<int> calls = std::vector<int>(5, 0);
    std::vector<std::thread::id> ids = std::vector<std::thread::id>(5);
  } seen;
  for (int round = 0; round < 3; ++round) {
    pool.ForEach(
        [](void* context, int thread) {
          auto& s = *static_cast<Seen*>(context);
          ++s.calls[thread];
          s.ids[thread] = std::this_thread::get_id();
        },
        &seen);
  }
  EXPECT_EQ(seen.ids[0], std::this_thread::get_id());
  for (int t = 0; t < 5; ++t) {
    EXPECT_EQ(seen.calls[t], 3) << t;
    for (int u = 0; u < t; ++u) EXPECT_NE(seen.ids[t], seen.ids[u]);
  }
}

TEST(Pool, ForEachRethrowsTheLowestThreadsErrorAndThePoolLivesOn) {
  Pool pool(Unpinned(4, kShortSpin));
  try {
    pool.ForEach(
        [](void*, int thread) {
          if (thread >= 2) throw Error("thread {} failed", thread);
        },
        nullptr);
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "thread 2 failed");
  }
  RunChain(pool, 5, 1);
}

TEST(Pool, SleepingWorkersWakeForTheNextFrame) {
  Pool pool(Unpinned(4, kSleepAtOnce));
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    RunChain(pool, 2, 1);
  }
}

TEST(Pool, PinsThreadZeroWhileItLivesAndGivesItsAffinityBack) {
  LARDER_NEEDS_THIS_MACHINE();
  cpu_set_t before, during, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const topology::Topology machine = topology::Topology::Detect();
  const std::vector<CoreId> cores = machine.PickCores(1);
  const CpuId cpu = machine.CpusOf(cores).front();
  {
    Pool pool({{cpu, cpu}, {}, kShortSpin});
    if (!pool.warnings().empty())
      GTEST_SKIP() << "pinning is not permitted here: " << pool.warnings().front();
    ASSERT_EQ(sched_getaffinity(0, sizeof(during), &during), 0);
    EXPECT_EQ(CPU_COUNT(&during), 1);
    EXPECT_TRUE(CPU_ISSET(cpu.value, &during));
    struct Seen {
      int cpu = -1;
    } seen;
    pool.ForEach(
        [](void* context, int thread) {
          if (thread == 1) static_cast<Seen*>(context)->cpu = sched_getcpu();
        },
        &seen);
    EXPECT_EQ(seen.cpu, cpu.value);
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(Pool, ACpuThatIsNotThereIsAWarningNotAnError) {
  Pool pool({{CpuId{}, CpuId(16000)}, {}, kShortSpin});
  ASSERT_EQ(pool.warnings().size(), 1u);
  EXPECT_NE(pool.warnings()[0].find("thread 1 is not pinned to CPU 16000"), std::string::npos)
      << pool.warnings()[0];
  RunChain(pool, 5, 1);
}

TEST(Pool, WrongOptionsAreErrors) {
  EXPECT_THROW(Pool({{}, {}, kShortSpin}), Error);
  EXPECT_THROW(Pool({{CpuId{}, CpuId{}}, {0}, kShortSpin}), Error);
  EXPECT_THROW(Pool({{CpuId(1 << 20)}, {}, kShortSpin}), Error);
}

TEST(Pool, TimelineRecordsStepsInOrderUpToItsCapacity) {
  Pool pool(Unpinned(2, kShortSpin));
  Chain chain(2, 3, true);
  uint64_t frame = 0;
  pool.Execute(chain.programs, &frame, 3);
  EXPECT_TRUE(pool.Timeline(0).empty());
  pool.EnableTimeline(5);  // of the six steps of two frames
  pool.Execute(chain.programs, &frame, 3);
  pool.Execute(chain.programs, &frame, 3);
  for (int t = 0; t < 2; ++t) {
    const std::span<const StepTime> line = pool.Timeline(t);
    ASSERT_EQ(line.size(), 5u);
    for (size_t i = 0; i < line.size(); ++i) {
      EXPECT_EQ(line[i].kind, 10 + t);
      EXPECT_EQ(line[i].layer, i % 3);
      EXPECT_EQ(line[i].frame, i / 3);
      EXPECT_GE(line[i].end_ticks, line[i].start_ticks);
      if (i > 0) {
        EXPECT_GE(line[i].start_ticks, line[i - 1].end_ticks);
      }
    }
  }
  pool.EnableTimeline(0);
  pool.Execute(chain.programs, &frame, 3);
  EXPECT_TRUE(pool.Timeline(0).empty());
  EXPECT_GT(Pool::TicksPerSecond(), 1e6);
}

// The kernel gives the thread other CPUs, as it does after a changed cpuset or a CPU that went
// off-line.
TEST(PoolTest, ALostPinIsSeen) {
  LARDER_NEEDS_THIS_MACHINE();
  const auto machine = topology::Topology::Detect();
  if (machine.cores().size() < 2) GTEST_SKIP() << "needs two cores";
  const CpuId first = machine.cores()[0].cpus[0], second = machine.cores()[1].cpus[0];
  Pool pool({{first, CpuId()}, {}, kSleepAtOnce});
  if (!pool.warnings().empty()) GTEST_SKIP() << pool.warnings()[0];
  EXPECT_TRUE(pool.LostPins().empty()) << "a thread that was never pinned cannot lose its pin";
  cpu_set_t both;
  CPU_ZERO(&both);
  CPU_SET(first.value, &both);
  CPU_SET(second.value, &both);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof(both), &both), 0);
  std::vector<std::string> lost;
  std::thread([&] { lost = pool.LostPins(); }).join();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_NE(lost[0].find(fmt::format("thread 0 was pinned to CPU {} and may now run on 2 CPUs",
                                     first.value)),
            std::string::npos)
      << lost[0];
}

}  // namespace
}  // namespace larder::threadpool
