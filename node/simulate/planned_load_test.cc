// Planned requests over simulated engines whose times are planted: what must come out of them.
#include "node/simulate/planned_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "node/loadgen/serve_report.h"
#include "pipeline/simulation/simulated_engine.h"
#include "pipeline/simulation/virtual_clock.h"

namespace larder::node::inline simulate {
namespace {

using pipeline::ServiceTimes;
using pipeline::StepLoad;

// Each stage takes so long for a micro-batch, and for a row.
struct PlantedTimes : ServiceTimes {
  explicit PlantedTimes(std::vector<uint64_t> of_stages) : stage_ns(std::move(of_stages)) {}
  size_t stages() const override { return stage_ns.size(); }
  uint64_t StageNs(size_t stage, const StepLoad& load) override {
    return stage_ns[stage] + row_ns * load.rows;
  }
  Link LinkOf(size_t) override { return {.latency_ns = latency_ns}; }
  uint64_t ServingNs(const StepLoad&) override { return 1000; }
  std::vector<uint64_t> stage_ns;
  uint64_t row_ns = 100, latency_ns = 1000;
};

struct Machine {
  size_t slots = 16, context = 256, chunks = 0;  // chunks of 16 positions; 0: a full context each
  bool dawdles = false;                          // takes real time as well
};

struct DawdlingEngine : pipeline::SimulatedEngine {
  using SimulatedEngine::SimulatedEngine;
  void Compute(std::span<const pipeline::TokenRow>) override {
    if (++steps % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  size_t steps = 0;
};

PlannedRun RunOn(ServiceTimes& times, const PlannedLoad& load, const Machine& machine = {}) {
  const pipeline::EngineLimits limits = {.capacity = {.slots = machine.slots,
                                                      .context = machine.context,
                                                      .max_batch_tokens = 32,
                                                      .max_in_flight = times.stages() + 1},
                                         .vocab = 50,
                                         .max_logits = 32};
  constexpr size_t kChunk = 16;
  const pipeline::KvChunksShape chunks = {
      .capacity = limits.capacity,
      .chunk_positions = kChunk,
      .slot_ends = {},
      .chunk_ends = {machine.chunks != 0 ? machine.chunks
                                         : machine.slots * machine.context / kChunk},
      .max_updates = 256,
      .kept = 4};
  pipeline::VirtualClock clock;
  std::unique_ptr<pipeline::SimulatedEngine> engine;
  if (machine.dawdles) {
    engine = std::make_unique<DawdlingEngine>(limits, chunks, times, clock);
  } else {
    engine = std::make_unique<pipeline::SimulatedEngine>(limits, chunks, times, clock);
  }
  PlannedRun run = RunPlanned(
      *engine, clock, [&](uint64_t at_ns) { clock.AdvanceTo(at_ns); }, load);
  EXPECT_EQ(engine->in_flight(), 0u);
  for (SlotId slot(0); slot.index() < engine->kv().lists(); ++slot) engine->kv().Reset(slot);
  EXPECT_EQ(engine->kv().free(AttentionId(0)), engine->kv().pool(AttentionId(0)))
      << "every chunk was given back";
  return run;
}

std::vector<PlannedRequest> Requests(size_t count, double rate) {
  return MakeWorkload({.requests = count,
                       .requests_per_s = rate,
                       .prompt_tokens = 40,
                       .answer_tokens = 20,
                       .range = 0.5,
                       .seed = 5});
}

bool Same(const PlannedRun& a, const PlannedRun& b) {
  const auto key = [](const loadgen::RequestResult& of) {
    return std::tuple(of.ok, of.start_ns, of.first_ns, of.last_ns, of.output_tokens, of.gaps_ns);
  };
  return std::ranges::equal(a.load.results, b.load.results, {}, key, key) &&
         a.load.duration_s == b.load.duration_s && a.scheduled.steps == b.scheduled.steps &&
         a.scheduled.preempted == b.scheduled.preempted;
}

// Its clock is the only one: real time that passes meanwhile changes nothing.
TEST(PlannedLoad, TheSameInputsGiveTheSameOutput) {
  PlantedTimes times({50'000, 80'000});
  const PlannedLoad load = {.requests = Requests(400, 2000)};
  const PlannedRun run = RunOn(times, load);
  EXPECT_TRUE(Same(run, RunOn(times, load)));
  EXPECT_TRUE(Same(run, RunOn(times, load, {.dawdles = true})));
  PlannedLoad other = load;
  other.requests.front().answer_tokens += 1;
  EXPECT_FALSE(Same(run, RunOn(times, other)));
}

TEST(PlannedLoad, EveryRequestEndsOnceWithAllItsTokens) {
  for (const auto policy :
       {pipeline::Policy::kMixed, pipeline::Policy::kDecodeFirst, pipeline::Policy::kPhases}) {
    for (const size_t chunks : {0u, 30u}) {
      for (const size_t most : {0u, 5u}) {
        PlantedTimes times({50'000, 60'000, 50'000});
        const PlannedLoad load = {.requests = Requests(1000, 3000),
                                  .max_concurrency = most,
                                  .policy = {.policy = policy}};
        const PlannedRun run = RunOn(times, load, {.chunks = chunks});
        uint64_t prompts = 0, answers = 0;
        for (size_t i = 0; i < load.requests.size(); ++i) {
          const loadgen::RequestResult& result = run.load.results[i];
          ASSERT_TRUE(result.ok) << i << ": " << result.error;
          ASSERT_EQ(result.output_tokens, load.requests[i].answer_tokens);
          ASSERT_EQ(result.gaps_ns.size() + 1, result.output_tokens);
          ASSERT_GT(result.first_ns, result.start_ns);
          prompts += load.requests[i].prompt_tokens;
          answers += result.output_tokens - 1;  // the last one is not computed
        }
        const ScheduledSteps& of = run.scheduled;
        EXPECT_EQ(of.preempted > 0, chunks > 0 && most == 0);
        EXPECT_EQ(of.prompt_rows + of.answer_rows, prompts + answers + of.repeated_rows);
        EXPECT_EQ(of.repeated_rows > 0, of.preempted > 0);
        if (most > 0) {
          EXPECT_LE(run.load.most_in_flight, most);
        }
      }
    }
  }
}

// One request after the other: its times are those that are planted.
TEST(PlannedLoad, FindsPlantedDelays) {
  for (const uint64_t latency_ns : {1'000u, 400'000u}) {
    PlantedTimes times({50'000, 80'000});
    times.latency_ns = latency_ns;
    PlannedLoad load = {.requests = {{0, 20, 11}}};
    const PlannedRun run = RunOn(times, load);
    const auto way_ns = static_cast<int64_t>(130'000 + 3 * latency_ns + 1000);  // without rows
    const loadgen::RequestResult& one = run.load.results[0];
    EXPECT_EQ(one.first_ns - one.start_ns, way_ns + 2 * 20 * 100);
    EXPECT_EQ(one.last_ns - one.first_ns, 10 * (way_ns + 2 * 100));
    // Two clients' steps overlap: the chain has room for three micro-batches.
    load.requests.push_back({0, 20, 11});
    EXPECT_LT(RunOn(times, load).load.duration_s, 1.5 * run.load.duration_s);
  }
}

double MedianTtftMs(ServiceTimes& times, double rate) {
  return loadgen::MakeServeReport(RunOn(times, {.requests = Requests(400, rate)}).load, {})
      .ttft.median;
}

// The rate above which requests wait much longer than where nobody does.
double Knee(const std::vector<uint64_t>& stages) {
  PlantedTimes times(stages);
  double below = 10, above = 10'000;
  const double idle = MedianTtftMs(times, below);
  EXPECT_GT(MedianTtftMs(times, above), 10 * idle);
  while (above > 1.03 * below) {
    const double rate = std::sqrt(below * above);
    (MedianTtftMs(times, rate) < 10 * idle ? below : above) = rate;
  }
  return below;
}

// A station that takes twice as long halves the rate that the chain can bear, wherever it is; one
// that is faster than the slowest does not matter.
TEST(PlannedLoad, TheSlowestStationSetsTheKnee) {
  const double even = Knee({100'000, 100'000, 100'000});
  for (const size_t slow : {0u, 1u, 2u}) {
    std::vector<uint64_t> stages(3, 100'000);
    stages[slow] = 200'000;
    EXPECT_NEAR(Knee(stages) / even, 0.5, 0.1) << slow;
    stages[(slow + 1) % 3] = 150'000;
    EXPECT_NEAR(Knee(stages) / even, 0.5, 0.1) << slow;
  }
}

TEST(PlannedLoad, ATraceHasTheRowsOfEachMicroBatch) {
  const TemporaryFolder folder;
  const std::string path = folder / "trace.txt";
  PlantedTimes times({1'000'000});
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"),
                                                               &std::fclose);
    RunOn(times, {.requests = {{0, 40, 3}, {0, 4, 2}},
                  .policy = {.max_stall_ms = 0, .prompt_rows = 16},
                  .trace = file.get()});
  }
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "1:0+4 0:0+28\n0:28+12\n1:4+1\n0:40+1\n0:41+1\n");
}

}  // namespace
}  // namespace larder::node::simulate
