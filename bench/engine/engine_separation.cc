// Separated weights and attention: decode with a weight socket and an attention socket of one core
// each, over context and batch, against two colocated forms: one socket of one core, so that
// separation adds a socket (the comparison of the cache-resident paper, section 6.5, Figure 9), and
// one socket of the same two cores. Separation starts to pay where the KV cache would evict the
// weights from the cache. Its table shows where.
#include <benchmark/benchmark.h>

#include <map>
#include <tuple>
#include <vector>

#include "bench/engine/engine_under_test.h"
#include "bench/ratio.h"
#include "threadpool/wait_choice.h"

namespace larder::bench {
namespace {

using benchmark::State;
using pipeline::Engine;
using pipeline::TokenRow;

constexpr int64_t kContexts[] = {64, 512, 2048, 8192};
constexpr int64_t kBatches[] = {1, 8, 32};
// Rows with more tokens in the KV cache are left out, since filling it takes minutes of prefill.
constexpr int64_t kMostTokens = 65'536;

int64_t LongestContext(int64_t batch) {
  int64_t longest = 0;
  for (const int64_t context : kContexts)
    if (context * batch <= kMostTokens) longest = context;
  return longest;
}

enum class Form { kOneCore, kTwoCores, kSeparated };

std::unique_ptr<Engine> Make(Form form, int64_t batch) {
  const auto file = model::GgufFile::Open(BenchModelPath());
  const std::vector<CoreId> cores = Machine().PickCores(2);
  pipeline::PlanOptions options;
  options.capacity.slots = static_cast<size_t>(batch);
  options.capacity.context = static_cast<size_t>(LongestContext(batch)) + 1;
  options.cores = form == Form::kTwoCores ? cores : std::vector<CoreId>{cores[0]};
  options.threads = options.cores.size();
  if (form == Form::kSeparated)
    options.attention = {
        {.name = "attention", .cores = {cores[1]}, .cpus = {}, .slots = options.capacity.slots}};
  pipeline::ChainOptions stage;
  stage.wait = threadpool::ChooseWaitPolicy(Machine(), Cpus(2), GetEngineBenchOptions().isolated);
  return std::make_unique<Engine>(
      file, pipeline::MakeStagePlan(model::ReadModelConfig(*file), Machine(), options), stage);
}

// One engine at a time; its slots are filled to the longest context that its rows have needed so
// far.
Engine& Filled(Form form, int64_t batch, int64_t context) {
  static std::unique_ptr<Engine> engine;
  static std::pair<Form, int64_t> made_for;
  DropBenchEngine();
  if (!engine || made_for != std::pair(form, batch)) {
    engine.reset();
    engine = Make(form, batch);
    made_for = {form, batch};
  }
  std::vector<TokenRow> rows;
  for (SlotId slot(0); slot.value < batch; ++slot) {
    rows.clear();
    for (size_t i = engine->length(slot); i < static_cast<size_t>(context); ++i)
      rows.push_back({static_cast<int32_t>(i % engine->plan().config.vocab), slot,
                      static_cast<uint32_t>(i), false});
    if (!rows.empty()) engine->Run(rows);
  }
  return *engine;
}

void Decode(State& state, Form form) {
  const int64_t batch = state.range(0), context = state.range(1);
  Engine& engine = Filled(form, batch, context);
  std::vector<TokenRow> rows;
  for (SlotId slot(0); slot.value < batch; ++slot)
    rows.push_back({1, slot, static_cast<uint32_t>(context), true});
  for (int i = 0; i < 3; ++i) engine.Run(rows);
  Stopwatch watch(state);
  for (auto _ : state) watch.Time([&] { engine.Run(rows); });
  const auto n = static_cast<double>(batch);
  const pipeline::StagePlan& plan = engine.plan();
  state.counters["tokens/s"] = n / watch.mean_s();
  state.counters["best tokens/s"] = n / watch.best_s();
  state.counters["KV MB"] = static_cast<double>(plan.kv_slot_bytes) * n *
                            static_cast<double>(context) /
                            static_cast<double>(plan.options.capacity.context) * 1e-6;
  // Rows of one socket run before separated ones.
  static std::map<std::tuple<Form, int64_t, int64_t>, double> best_s;
  double& best = best_s.try_emplace({form, batch, context}, watch.best_s()).first->second;
  best = std::min(best, watch.best_s());
  if (form != Form::kSeparated) return;
  for (const auto& [other, name] : {std::pair(Form::kOneCore, "best / one core"),
                                    std::pair(Form::kTwoCores, "best / two cores")}) {
    if (const auto it = best_s.find({other, batch, context}); it != best_s.end())
      state.counters[name] = it->second / watch.best_s();
  }
}

}  // namespace

void RegisterSeparation() {
  if (Cores() < 2) return;
  // Ordered by batch, since the engine of one batch is filled further from row to row.
  for (const int64_t batch : kBatches) {
    for (const auto& [form, name] : {std::pair(Form::kOneCore, "sockets/one_core"),
                                     std::pair(Form::kTwoCores, "sockets/two_cores"),
                                     std::pair(Form::kSeparated, "sockets/separated")}) {
      auto* row = benchmark::RegisterBenchmark(name, Decode, form);
      row->ArgNames({"batch", "context"})->UseManualTime()->Unit(benchmark::kMicrosecond);
      for (const int64_t context : kContexts)
        if (context <= LongestContext(batch)) row->Args({batch, context});
    }
  }
}

}  // namespace larder::bench
