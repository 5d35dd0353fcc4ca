// Weights here, attention there, against both on both: decode with two sockets of one core each, and with the
// same two cores colocated, over context and batch (cache-resident paper, section 6, Figure 9). Separation
// starts to pay where the KV cache would push the weights out of L3. Its table shows where that is.
#include <benchmark/benchmark.h>

#include <map>
#include <vector>

#include "bench/engine_under_test.h"
#include "bench/ratio.h"
#include "threadpool/wait_choice.h"

namespace larder::bench {
namespace {

using benchmark::State;
using pipeline::Engine;
using pipeline::TokenRow;

constexpr int64_t kContexts[] = {64, 512, 2048, 8192};
constexpr int64_t kBatches[] = {1, 8, 32};
// Rows with more tokens in the KV cache are left out: filling them takes minutes of prefill.
constexpr int64_t kMostTokens = 65'536;

int64_t LongestContext(int64_t batch) {
  int64_t longest = 0;
  for (const int64_t context : kContexts)
    if (context * batch <= kMostTokens) longest = context;
  return longest;
}

std::unique_ptr<Engine> Make(bool separated, int64_t batch) {
  const auto file = model::GgufFile::Open(BenchModelPath());
  const std::vector<CoreId> cores = Machine().PickCores(2);
  pipeline::PlanOptions options;
  options.slots = static_cast<size_t>(batch);
  options.context = static_cast<size_t>(LongestContext(batch)) + 1;
  options.cores = separated ? std::vector<CoreId>{cores[0]} : cores;
  options.threads = options.cores.size();
  if (separated)
    options.attention = {{.name = "attention", .cores = {cores[1]}, .cpus = {}, .slots = options.slots}};
  pipeline::StageOptions stage;
  stage.wait = threadpool::ChooseWaitPolicy(Machine(), Cpus(2), GetEngineBenchOptions().isolated);
  return std::make_unique<Engine>(file, pipeline::MakePlan(model::ReadModelConfig(*file), Machine(), options),
                                  stage);
}

// One engine at a time; its slots are filled as far as the rows so far have asked.
Engine& Filled(bool separated, int64_t batch, int64_t context) {
  static std::unique_ptr<Engine> engine;
  static std::pair<bool, int64_t> made_for;
  DropBenchEngine();
  if (!engine || made_for != std::pair(separated, batch)) {
    engine.reset();
    engine = Make(separated, batch);
    made_for = {separated, batch};
  }
  std::vector<TokenRow> rows;
  for (int32_t slot = 0; slot < batch; ++slot) {
    rows.clear();
    for (size_t i = engine->length(slot); i < static_cast<size_t>(context); ++i)
      rows.push_back(
          {static_cast<int32_t>(i % engine->plan().config.vocab), slot, static_cast<uint32_t>(i), false});
    if (!rows.empty()) engine->Run(rows);
  }
  return *engine;
}

void Decode(State& state, bool separated) {
  const int64_t batch = state.range(0), context = state.range(1);
  Engine& engine = Filled(separated, batch, context);
  std::vector<TokenRow> rows;
  for (int32_t slot = 0; slot < batch; ++slot)
    rows.push_back({1, slot, static_cast<uint32_t>(context), true});
  for (int i = 0; i < 3; ++i) engine.Run(rows);
  Stopwatch watch(state);
  for (auto _ : state) watch.Time([&] { engine.Run(rows); });
  const auto n = static_cast<double>(batch);
  const pipeline::Plan& plan = engine.plan();
  state.counters["tokens/s"] = n / watch.mean_s();
  state.counters["best tokens/s"] = n / watch.best_s();
  state.counters["KV MB"] = static_cast<double>(plan.kv_slot_bytes) * n * static_cast<double>(context) /
                            static_cast<double>(plan.options.context) * 1e-6;
  // Colocated rows run before separated ones.
  static std::map<std::pair<int64_t, int64_t>, double> colocated_s;
  if (!separated) {
    double& best = colocated_s.try_emplace({batch, context}, watch.best_s()).first->second;
    best = std::min(best, watch.best_s());
  } else if (const auto it = colocated_s.find({batch, context}); it != colocated_s.end()) {
    state.counters["best / colocated"] = it->second / watch.best_s();
  }
}

}  // namespace

void RegisterSeparation() {
  if (Cores() < 2) return;
  // Batch by batch: an engine of one batch is filled further from row to row.
  for (const int64_t batch : kBatches) {
    for (const bool separated : {false, true}) {
      auto* row = benchmark::RegisterBenchmark(separated ? "sockets/separated" : "sockets/colocated", Decode,
                                               separated);
      row->ArgNames({"batch", "context"})->UseManualTime()->Unit(benchmark::kMicrosecond);
      for (const int64_t context : kContexts)
        if (context <= LongestContext(batch)) row->Args({batch, context});
    }
  }
}

}  // namespace larder::bench
