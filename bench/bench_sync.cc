// The cost of waiting: one hand-over of a cache line, an epoch flag, and barriers (two-level, flat,
// GNU OpenMP's), by number of threads and relation of their cores. The baseline of a barrier is two
// hand-overs, the least in which two threads can synchronize.
#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <vector>

#include "bench/bench_main.h"
#include "bench/flat_barrier.h"
#include "bench/ratio.h"
#include "bench/sync_pool.h"
#include "sync/barrier.h"
#include "sync/epoch_flag.h"
#include "threadpool/pool.h"
#include "threadpool/wait_choice.h"
#include "topology/probe.h"

namespace larder::bench {
namespace {

using benchmark::State;
using sync::WaitPolicy;

bool OverCommitted(size_t threads) { return threads > Cores(); }
// Fewer rounds if over-committed, since each then goes through the scheduler.
uint64_t RoundsOf(size_t threads) { return OverCommitted(threads) ? 50 : 5000; }

WaitPolicy PolicyOf(size_t threads) {
  return OverCommitted(threads) ? WaitPolicy{WaitPolicy::Mode::kAdaptive, 10}
                                : WaitPolicy{WaitPolicy::Mode::kSpin, 0};
}

threadpool::PoolOptions CrewOptions(const std::vector<CpuId>& cpus) {
  // The crew sleeps between batches of rounds, so that its own waiting does not use the cores.
  return {cpus, {}, {WaitPolicy::Mode::kAdaptive, sync::SpinIterationsFor(20'000)}};
}

// The seconds that thread 0 takes for `rounds` calls of meet(thread), while all other threads of
// the crew make as many.
template <typename Meet>
double CrewSeconds(threadpool::Pool& crew, uint64_t rounds, Meet& meet) {
  struct Context {
    uint64_t rounds;
    Meet& meet;
    double seconds;
  } context{rounds, meet, 0};
  crew.ForEach(
      [](void* raw, int thread) {
        auto& c = *static_cast<Context*>(raw);
        for (uint64_t i = 0; i < c.rounds / 10 + 1; ++i)
          c.meet(thread);  // until all threads are awake
        const int64_t start = NowNs();
        for (uint64_t i = 0; i < c.rounds; ++i) c.meet(thread);
        if (thread == 0) c.seconds = SecondsSince(start);
      },
      &context);
  return context.seconds;
}

// The longest hand-over between neighbours of a crew, the lower limit of a barrier among them.
// Measured once per pair.
double HandOver(const std::vector<CpuId>& cpus) {
  static std::map<std::pair<CpuId, CpuId>, double> known;
  double longest = 0;
  for (size_t i = 0; i + 1 < cpus.size(); ++i) {
    if (cpus[i] == cpus[i + 1]) continue;
    auto [entry, is_new] = known.try_emplace({cpus[i], cpus[i + 1]}, 0.0);
    if (is_new) entry->second = topology::HandOverNs(cpus[i], cpus[i + 1]);
    longest = std::max(longest, entry->second);
  }
  return longest;
}

void Report(State& state, const Stopwatch& watch, const std::vector<CpuId>& cpus, uint64_t rounds) {
  const double best_ns = watch.best_s() * 1e9 / static_cast<double>(rounds);
  state.counters["ns"] = watch.mean_s() * 1e9 / static_cast<double>(rounds);
  state.counters["best ns"] = best_ns;
  state.counters["overcommitted"] = OverCommitted(cpus.size()) ? 1 : 0;
  const double hand_over = HandOver(cpus);
  if (hand_over <= 0) return;  // one core only
  state.counters["hand-over ns"] = hand_over;
  state.counters["best / 2 hand-overs"] = best_ns / (2 * hand_over);
}

template <typename Meet>
void TimeCrew(State& state, const std::vector<CpuId>& cpus, Meet meet) {
  const uint64_t rounds = RoundsOf(cpus.size());
  threadpool::Pool crew(CrewOptions(cpus));
  Stopwatch watch(state);
  for (auto _ : state) watch.Add(CrewSeconds(crew, rounds, meet));
  Report(state, watch, cpus, rounds);
}

// groups: 0: the machine's; otherwise the threads are divided into that many, to show the cost of
// the second level on a machine with a single L3.
void TwoLevel(State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  const std::vector<CpuId> cpus = Cpus(threads);
  std::vector<int> group = Machine().GroupsOf(Machine().PickCores(threads));
  const auto groups = static_cast<size_t>(state.range(1));
  for (size_t t = 0; groups != 0 && t < threads; ++t)
    group[t] = static_cast<int>(t * groups / threads);
  sync::TreeBarrier barrier(sync::BarrierShape::Of(group, {}), PolicyOf(threads));
  TimeCrew(state, cpus, [&barrier](int thread) { barrier.Wait(thread); });
}

void Flat(State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  FlatBarrier barrier(static_cast<int>(threads), PolicyOf(threads));
  TimeCrew(state, Cpus(threads), [&barrier](int) { barrier.Wait(); });
}

#ifdef _OPENMP
// GNU OpenMP's own threads, pinned like ours, with its default waiting (the user may set
// OMP_WAIT_POLICY).
void OpenMp(State& state) {
  const auto threads = static_cast<int>(state.range(0));
  const std::vector<CpuId> cpus = Cpus(static_cast<size_t>(threads));
  const uint64_t rounds = RoundsOf(cpus.size());
  const Pinned pinned(cpus[0]);
  Stopwatch watch(state);
  for (auto _ : state) {
    double seconds = 0;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static, 1)
      for (int t = 0; t < threads; ++t) topology::PinThisThread(cpus[static_cast<size_t>(t)]);
      for (uint64_t i = 0; i < rounds / 10 + 1; ++i) {
#pragma omp barrier
      }
      const int64_t start = NowNs();
      for (uint64_t i = 0; i < rounds; ++i) {
#pragma omp barrier
      }
#pragma omp master
      seconds = SecondsSince(start);
    }
    watch.Add(seconds);
  }
  Report(state, watch, cpus, rounds);
}
#endif

// One flag in each direction; a round is one way.
void FlagPingPong(State& state) {
  const auto threads = std::max<size_t>(2, Cores());
  const std::vector<CpuId> all = Cpus(threads);
  const std::vector<CpuId> cpus = {all[0], all[static_cast<size_t>(state.range(0))]};
  const WaitPolicy policy = cpus[0] == cpus[1] ? PolicyOf(Cores() + 1) : PolicyOf(2);
  auto flags = std::make_unique<sync::EpochFlag[]>(2);
  uint32_t epoch[2 * kFalseSharingBytes] = {};  // more than a cache line per thread
  const uint64_t trips = cpus[0] == cpus[1] ? 50 : 5000;
  threadpool::Pool crew(CrewOptions(cpus));
  auto meet = [&](int thread) {
    const uint32_t next = ++epoch[static_cast<size_t>(thread) * kFalseSharingBytes];
    if (thread == 0) {
      flags[0].Signal(next, policy.mode);
      flags[1].Wait(next, policy);
    } else {
      flags[0].Wait(next, policy);
      flags[1].Signal(next, policy.mode);
    }
  };
  Stopwatch watch(state);
  for (auto _ : state) watch.Add(CrewSeconds(crew, trips, meet));
  const double best_ns = watch.best_s() / static_cast<double>(2 * trips) * 1e9;
  state.counters["ns"] = watch.mean_s() * 1e9 / static_cast<double>(2 * trips);
  state.counters["best ns"] = best_ns;
  if (const double hand_over = HandOver(cpus); hand_over > 0) {
    state.counters["hand-over ns"] = hand_over;
    state.counters["best / hand-over"] = best_ns / hand_over;
  }
}

// How two cores are related.
std::string Relation(const topology::Core& a, const topology::Core& b) {
  if (a.id == b.id) return "same_core";
  if (a.l3_group == b.l3_group) return "same_L3";
  return a.package == b.package ? "other_L3" : "other_package";
}

void RegisterPingPong() {
  std::vector<std::string> seen;
  const std::vector<CoreId> cores = Machine().PickCores(std::max<size_t>(2, Cores()));
  for (size_t i = 1; i < cores.size(); ++i) {
    const std::string relation = Relation(Machine().core(cores[0]), Machine().core(cores[i]));
    if (std::find(seen.begin(), seen.end(), relation) != seen.end()) continue;
    seen.push_back(relation);
    benchmark::RegisterBenchmark(("epoch_flag/" + relation).c_str(), FlagPingPong)
        ->ArgName("with")
        ->Arg(static_cast<int64_t>(i))
        ->UseManualTime();
  }
}

void RegisterAll() {
  RegisterPingPong();
  std::vector<int64_t> counts = ThreadCounts(2);
  counts.push_back(static_cast<int64_t>(2 * std::max<size_t>(2, Cores())));  // over-committed
  if (Cores() == 1) counts.erase(counts.begin() + 1, counts.end());
  for (const int64_t threads : counts) {
    auto* two_level = benchmark::RegisterBenchmark("barrier/two_level", TwoLevel);
    two_level->ArgNames({"threads", "groups"})->Args({threads, 0})->UseManualTime();
    if (threads >= 4) two_level->Args({threads, 2});
    benchmark::RegisterBenchmark("barrier/flat", Flat)
        ->ArgName("threads")
        ->Arg(threads)
        ->UseManualTime();
  }
#ifdef _OPENMP
  // registered last, since its threads spin for a while after a region has ended
  for (const int64_t threads : counts)
    benchmark::RegisterBenchmark("barrier/openmp", OpenMp)
        ->ArgName("threads")
        ->Arg(threads)
        ->UseManualTime();
#endif
  RegisterPool();
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  return larder::bench::RunBenchmarks(argc, argv, larder::bench::RegisterAll);
}
