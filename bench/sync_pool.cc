// The static thread pool against OpenMP: a program of operators, each a fixed small piece of work
// for every thread followed by a barrier, as Larder runs it (one Execute with barriers inside) and
// as most engines do (one parallel region per operator). The limit is the same work on one thread
// without waiting.
#include "bench/sync_pool.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "bench/ratio.h"
#include "rdma/common/shared_memory.h"
#include "rdma/shm/shm_link.h"
#include "threadpool/pool.h"
#include "threadpool/wait_choice.h"

namespace larder::bench {
namespace {

using benchmark::State;

constexpr uint32_t kOperators = 64;

// A chain of multiplications, which uses no memory, so that only the waiting differs.
void Work(const void* operand, void*) {
  uint64_t x = 1;
  for (uint64_t i = 0, n = *static_cast<const uint64_t*>(operand); i < n; ++i) {
    x *= 6364136223846793005u;
    benchmark::DoNotOptimize(x);
  }
}

double WorkSeconds(uint64_t turns) {
  double best = 1;
  for (int sample = 0; sample < 20; ++sample) {
    const int64_t start = NowNs();
    for (uint32_t i = 0; i < kOperators; ++i) Work(&turns, nullptr);
    best = std::min(best, SecondsSince(start));
  }
  return best;
}

uint64_t TurnsFor(double ns) {
  constexpr uint64_t kProbe = 10'000;
  return static_cast<uint64_t>(ns * 1e-9 * kOperators * kProbe / WorkSeconds(kProbe)) + 1;
}

void Report(State& state, const Stopwatch& watch, double ideal_s) {
  const double best_ns = watch.best_s() * 1e9 / kOperators, ideal_ns = ideal_s * 1e9 / kOperators;
  state.counters["ns"] = watch.mean_s() * 1e9 / kOperators;
  state.counters["work ns"] = ideal_ns;
  state.counters["best overhead ns"] = best_ns - ideal_ns;
  state.counters["best of limit"] = ideal_ns / best_ns;
}

void StaticPool(State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  const std::vector<CpuId> cpus = Cpus(threads);
  threadpool::Pool pool({cpus, Machine().GroupsOf(Machine().PickCores(threads)),
                         threadpool::ChooseWaitPolicy(Machine(), cpus, false)});
  const uint64_t turns = TurnsFor(static_cast<double>(state.range(1)));
  std::vector<threadpool::Step> steps(kOperators);
  for (threadpool::Step& step : steps) {
    step.kernel = Work;
    step.operand = &turns;
    step.barrier = true;
  }
  steps.back().barrier = false;  // Execute's own join is the last barrier
  const std::vector<threadpool::Program> programs(threads, {steps.data(), kOperators});
  double ideal_s = WorkSeconds(turns);
  for (int i = 0; i < 3; ++i) pool.Execute(programs, nullptr, 1);
  Stopwatch watch(state);
  for (auto _ : state) watch.Time([&] { pool.Execute(programs, nullptr, 1); });
  ideal_s = std::min(ideal_s, WorkSeconds(turns));
  Report(state, watch, ideal_s);
}

// What hands over a micro-batch of one row, without its arithmetic: as LocalChain, in one Execute,
// or as a chain of one stage over a loopback link would: embedding, layers and lm_head in an
// Execute each, and a frame with the row's residual before and after the layers.
void HandOver(State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  const bool over_link = state.range(1) != 0;
  constexpr size_t kRowFloats = 192;
  constexpr int kRounds = 2000;
  const std::vector<CpuId> cpus = Cpus(threads);
  threadpool::Pool pool({cpus, Machine().GroupsOf(Machine().PickCores(threads)),
                         threadpool::ChooseWaitPolicy(Machine(), cpus, false)});
  const std::vector<threadpool::Program> empty(threads);
  const rdma::LinkShape shape{.frame_bytes = kRowFloats * sizeof(float), .slots = 2};
  const rdma::SharedMemory memory =
      rdma::SharedMemory::Create(rdma::ShmLink::RegionBytes(shape), "larder-bench");
  rdma::ShmLink::Format(memory.span(), shape);
  rdma::ShmLink sender(memory.span(), shape, rdma::LinkSide::kSend);
  rdma::ShmLink receiver(memory.span(), shape, rdma::LinkSide::kReceive);
  std::vector<float> row(kRowFloats, 1.0f);
  const auto pass_on = [&] {
    std::memcpy(sender.BeginSend().bytes, row.data(), shape.frame_bytes);
    sender.EndSend(shape.frame_bytes);
    std::memcpy(row.data(), receiver.BeginReceive().bytes, shape.frame_bytes);
    receiver.EndReceive();
  };
  Stopwatch watch(state);
  for (auto _ : state) {
    watch.Time([&] {
      for (int i = 0; i < kRounds; ++i) {
        pool.Execute(empty, nullptr, 1);
        for (int hop = 0; over_link && hop < 2; ++hop) {
          pass_on();
          pool.Execute(empty, nullptr, 1);
        }
      }
    });
  }
  state.counters["ns"] = watch.mean_s() * 1e9 / kRounds;
  state.counters["best ns"] = watch.best_s() * 1e9 / kRounds;
}

#ifdef _OPENMP
void OpenMp(State& state) {
  const auto threads = static_cast<int>(state.range(0));
  const std::vector<CpuId> cpus = Cpus(static_cast<size_t>(threads));
  const Pinned pinned(cpus[0]);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) topology::PinThisThread(cpus[static_cast<size_t>(t)]);
  const uint64_t turns = TurnsFor(static_cast<double>(state.range(1)));
  double ideal_s = WorkSeconds(turns);
  Stopwatch watch(state);
  for (auto _ : state) {
    watch.Time([&] {
      for (uint32_t i = 0; i < kOperators; ++i) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int t = 0; t < threads; ++t) Work(&turns, nullptr);
      }
    });
  }
  ideal_s = std::min(ideal_s, WorkSeconds(turns));
  Report(state, watch, ideal_s);
}
#endif

}  // namespace

void RegisterPool() {
  const std::vector<int64_t> work_ns = {500, 2000, 10'000};
  auto add = [&](const char* name, void (*run)(State&)) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgNames({"threads", "work_ns"})
        ->ArgsProduct({ThreadCounts(std::min<size_t>(2, Cores())), work_ns})
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  add("operators/static_pool", StaticPool);
  benchmark::RegisterBenchmark("micro_batch/hand_over", HandOver)
      ->ArgNames({"threads", "over_link"})
      ->ArgsProduct({ThreadCounts(1), {0, 1}})
      ->UseManualTime();
#ifdef _OPENMP
  add("operators/openmp", OpenMp);
#endif
}

}  // namespace larder::bench
