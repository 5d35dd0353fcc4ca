// The static thread pool against OpenMP: a program of operators, each a fixed small piece of work
// for every thread followed by a barrier, as Larder runs it (one Execute with barriers inside) and
// as most engines do (one parallel region per operator). The limit is the same work on one thread
// without waiting.
#include "bench/sync_pool.h"

#include <benchmark/benchmark.h>

#include <vector>

#include "bench/ratio.h"
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
#ifdef _OPENMP
  add("operators/openmp", OpenMp);
#endif
}

}  // namespace larder::bench
