// Helpers of the benchmarks: a pinned thread, the machine, and the ratio of a rate to its limit.
// Every row reports a share of a limit that was measured in the same run, before and after its
// loop, on the same buffers. Absolute figures from a shared machine cannot be compared; ratios of
// one run can.
#pragma once

#include <benchmark/benchmark.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "topology/affinity.h"
#include "topology/topology.h"

namespace larder::bench {

inline const topology::Topology& Machine() {
  static const topology::Topology topology = topology::Topology::Detect();
  return topology;
}

// A CPU for each of `threads` threads: one per core, starting again from the first core when all
// are used.
inline std::vector<CpuId> Cpus(size_t threads) {
  return Machine().CpusOf(Machine().PickCores(threads));
}
inline size_t Cores() { return Machine().cores().size(); }

// from, 2 from, 4 from ... and the number of cores (or `from`, if that is larger).
inline std::vector<int64_t> ThreadCounts(size_t from) {
  std::vector<int64_t> counts;
  for (size_t n = from; n < Cores(); n *= 2) counts.push_back(static_cast<int64_t>(n));
  counts.push_back(static_cast<int64_t>(std::max(from, Cores())));
  return counts;
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

// Pins the calling thread to `cpu` for this object's lifetime.
class Pinned {
 public:
  explicit Pinned(CpuId cpu)
      : before_(topology::GetAffinity(pthread_self())), pinned_(topology::PinThisThread(cpu)) {}
  ~Pinned() {
    if (!before_.empty()) topology::SetAffinity(pthread_self(), before_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  bool pinned() const { return pinned_; }

 private:
  const std::vector<CpuId> before_;
  const bool pinned_;
};

// Times one piece of work per iteration of a loop with UseManualTime. Reading the clock takes 25
// ns, so the work should take 10 us or more. It keeps the best iteration as well as the mean that
// Google Benchmark reports, since a limit that is a best of many must be compared with a best of
// many.
class Stopwatch {
 public:
  explicit Stopwatch(benchmark::State& state) : state_(state) {}
  template <typename Work>
  void Time(Work&& work) {
    const int64_t start = NowNs();
    work();
    Add(SecondsSince(start));
  }
  void Add(double seconds) {
    best_s_ = std::min(best_s_, seconds);
    total_s_ += seconds;
    ++count_;
    state_.SetIterationTime(seconds);
  }
  double best_s() const { return best_s_; }
  double mean_s() const { return total_s_ / static_cast<double>(std::max<uint64_t>(1, count_)); }

 private:
  benchmark::State& state_;
  uint64_t count_ = 0;
  double total_s_ = 0;
  double best_s_ = std::numeric_limits<double>::infinity();
};

// Sets the counters of a row: the rate `name`, in billions of units per second with `units` per
// iteration, and its ratio to `limit`, in the same unit. limit <= 0: no ratio.
inline void SetRate(benchmark::State& state, const Stopwatch& watch, const std::string& name,
                    double units, double limit, const std::string& of_limit) {
  const double rate = units * 1e-9 / watch.mean_s();
  state.counters[name] = rate;
  if (limit <= 0) return;
  state.counters["limit " + name] = limit;
  state.counters[of_limit] = rate / limit;
  state.counters["best " + of_limit] = units * 1e-9 / watch.best_s() / limit;
}

}  // namespace larder::bench
