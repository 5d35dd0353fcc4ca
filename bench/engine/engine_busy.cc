// Decode with a busy process on each of the engine's CPUs. The scheduler's fair share is half; any
// further loss is waiting for a thread that is not running. The target is a third of the quiet
// speed.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "bench/engine/engine_under_test.h"
#include "bench/ratio.h"

namespace larder::bench {
namespace {

using benchmark::State;

constexpr double kQuietSeconds = 0.25;

// Processes, not threads, so that how the scheduler treats them does not depend on this program.
class BusyProcesses {
 public:
  explicit BusyProcesses(const std::vector<CpuId>& cpus) {
    for (const CpuId cpu : cpus) {
      const pid_t child = fork();
      if (child < 0) throw Error("fork: no process left");
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        topology::PinThisThread(cpu);
        for (uint64_t i = 0;; ++i) benchmark::DoNotOptimize(i);
      }
      children_.push_back(child);
    }
  }
  ~BusyProcesses() {
    for (const pid_t child : children_) kill(child, SIGKILL);
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  std::vector<pid_t> children_;
};

// Steps of one sequence, from an empty context to kBenchGenerate tokens, then again from the start.
class OneSequence {
 public:
  explicit OneSequence(pipeline::Engine& engine) : engine_(engine) {}
  void Step() {
    row_ = {static_cast<int32_t>(position_ % engine_.plan().config.vocab), SlotId(0), position_,
            true};
    engine_.Run({&row_, 1});
    position_ = (position_ + 1) % kBenchGenerate;
  }
  double StepsPerSecond(double seconds) {
    const int64_t start = NowNs();
    double steps = 0;
    for (; SecondsSince(start) < seconds; ++steps) Step();
    return steps / SecondsSince(start);
  }

 private:
  pipeline::Engine& engine_;
  pipeline::TokenRow row_;
  uint32_t position_ = 0;
};

// Other work on the machine would lower the quiet speed and improve the ratio, so the quiet speed
// is the better of before and after.
void Busy(State& state) {
  const auto threads = static_cast<size_t>(state.range(0));
  OneSequence sequence(BenchEngine(threads));
  double quiet = sequence.StepsPerSecond(kQuietSeconds);
  Stopwatch watch(state);
  {
    const BusyProcesses others(Cpus(threads));
    sequence.StepsPerSecond(kQuietSeconds);  // until the scheduler has adapted to them
    for (auto _ : state) watch.Time([&] { sequence.Step(); });
  }
  quiet = std::max(quiet, sequence.StepsPerSecond(kQuietSeconds));
  state.counters["tokens/s"] = 1 / watch.mean_s();
  state.counters["quiet tokens/s"] = quiet;
  state.counters["of quiet"] = 1 / watch.mean_s() / quiet;
}

}  // namespace

void RegisterBusy() {
  benchmark::RegisterBenchmark("busy/decode", Busy)
      ->ArgName("threads")
      ->Arg(static_cast<int64_t>(std::min<size_t>(2, Cores())))
      ->MinTime(2)  // hundreds of the scheduler's time slices
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace larder::bench
