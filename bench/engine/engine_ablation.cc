// One decode step with the same kernels and operands and different ways to wait between them:
//   heads      as the Stage runs it: attention of a head starts when that head's rows are there
//   operators  a barrier of all threads after QKV, and one after appending, instead of the heads'
//              flags
//   openmp     as `heads`, with a parallel region of GNU OpenMP in place of each barrier
// All else is as in the row `decode`, so the differences are the cost of waiting.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "bench/engine/engine_under_test.h"
#include "bench/ratio.h"
#include "pipeline/stage/cpu_stage.h"

namespace larder::bench {
namespace {

using benchmark::State;
using model::StepKind;
using threadpool::Step;
using Steps = std::vector<Step>;

constexpr size_t kContext = 128;  // tokens in the KV cache

bool Is(const Step& step, StepKind kind) { return step.kind == static_cast<uint16_t>(kind); }

Step WithoutFlags(Step step) {
  step.waits = nullptr;
  step.wait_count = 0;
  step.signal = nullptr;
  return step;
}

// The steps of one thread without flags. Where a layer's attention begins there is a barrier, then
// the layer's appends, then a barrier. Every thread has a step of kind kAttention in every layer,
// even if it is only the barrier at the layer's end.
Steps OperatorSteps(std::span<const Step> from) {
  Step meet;
  meet.barrier = true;
  Steps to;
  int attending_layer = -1;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool append = Is(from[i], StepKind::kAppend);
    if ((append || Is(from[i], StepKind::kAttention)) && attending_layer != from[i].layer) {
      attending_layer = from[i].layer;
      to.push_back(meet);
      for (size_t k = i; k < from.size() && from[k].layer == attending_layer; ++k) {
        if (Is(from[k], StepKind::kAppend)) to.push_back(WithoutFlags(from[k]));
      }
      to.push_back(meet);
    }
    if (!append) to.push_back(WithoutFlags(from[i]));
  }
  return to;
}

// One row: a token at position kContext of slot 0, whose context has been computed.
struct DecodeFrame {
  int32_t token = 1;
  SlotId slot{0};
  uint32_t position = kContext, logit_row = 0;
  model::BatchRows rows() {
    return {.rows = 1,
            .token = &token,
            .slot = &slot,
            .position = &position,
            .logit_rows = 1,
            .logit_row = &logit_row};
  }
};

void FillContext(pipeline::Engine& engine) {
  std::vector<pipeline::TokenRow> rows(kContext);
  for (size_t i = 0; i < kContext; ++i)
    rows[i] = {static_cast<int32_t>(i % engine.plan().config.vocab), SlotId(0),
               static_cast<uint32_t>(i), i + 1 == kContext};
  engine.Run(rows);
}

void Report(State& state, const Stopwatch& watch, double heads_s) {
  state.counters["tokens/s"] = 1 / watch.mean_s();
  state.counters["best tokens/s"] = 1 / watch.best_s();
  state.counters["best of heads"] = heads_s / watch.best_s();
}

// The baseline of all three: the Stage's own steps, before and after the loop.
double HeadsSeconds(pipeline::Engine& engine, DecodeFrame& frame) {
  double best = 1e9;
  for (int i = 0; i < 200; ++i) {
    model::BatchRows rows = frame.rows();
    const int64_t start = NowNs();
    engine.stage().Execute(rows, 0);
    best = std::min(best, SecondsSince(start));
  }
  return best;
}

// For comparison: if another way of waiting gives other bits, it does not wait for all that it
// needs.
std::vector<float> Logits(pipeline::Engine& engine) {
  const auto logits = engine.packed().logits(0);
  return {logits.begin(), logits.end()};
}
void CheckLogits(State& state, pipeline::Engine& engine, const std::vector<float>& expected) {
  if (Logits(engine) != expected)
    state.SkipWithError("other logits than the Stage's own steps give");
}

void Heads(State& state) {
  pipeline::Engine& engine = BenchEngine(static_cast<size_t>(state.range(0)));
  FillContext(engine);
  DecodeFrame frame;
  const double heads_s = HeadsSeconds(engine, frame);
  model::BatchRows rows = frame.rows();
  Stopwatch watch(state);
  for (auto _ : state) watch.Time([&] { engine.stage().Execute(rows, 0); });
  Report(state, watch, heads_s);
}

void Operators(State& state) {
  pipeline::Engine& engine = BenchEngine(static_cast<size_t>(state.range(0)));
  FillContext(engine);
  std::vector<Steps> steps;
  std::vector<threadpool::Program> programs;
  for (size_t t = 0; t < engine.plan().threads.size(); ++t)
    steps.push_back(OperatorSteps(
        pipeline::CpuStage::Of(engine.stage()).steps(weight_node::ProgramForm::kFewRows, t)));
  for (const Steps& s : steps) programs.push_back({s.data(), static_cast<uint32_t>(s.size())});
  DecodeFrame frame;
  double heads_s = HeadsSeconds(engine, frame);
  const std::vector<float> expected = Logits(engine);
  model::BatchRows rows = frame.rows();
  // As Stage::Execute has them: the micro-batch, its halves, its logit rows.
  void* const parts[] = {&rows, nullptr, nullptr, &rows};
  Stopwatch watch(state);
  for (auto _ : state) watch.Time([&] { engine.packed().pool().Execute(programs, parts, 1); });
  CheckLogits(state, engine, expected);
  heads_s = std::min(heads_s, HeadsSeconds(engine, frame));
  Report(state, watch, heads_s);
}

#ifdef _OPENMP
// Runs a thread's steps from its cursor to its next barrier. Returns false at the end of its
// program.
bool WalkSegment(std::span<const Step> steps, size_t& cursor, uint32_t base_epoch, void* frame) {
  const sync::WaitPolicy wait{sync::WaitPolicy::Mode::kAdaptive, 1000};
  while (cursor < steps.size()) {
    const Step& step = steps[cursor++];
    const uint32_t target = base_epoch + step.epoch_offset;
    for (uint32_t w = 0; w < step.wait_count; ++w) step.waits[w]->Wait(target, wait);
    if (step.kernel != nullptr) step.kernel(step.operand, frame);
    if (step.signal != nullptr) step.signal->Signal(target);
    if (step.barrier) return true;
  }
  return false;
}

void OpenMpRegions(State& state) {
  const auto threads = static_cast<int>(state.range(0));
  // A separate engine: the regions signal ahead of its pool's epochs, so its pool must not run
  // again.
  DropBenchEngine();
  const std::unique_ptr<pipeline::Engine> engine = MakeBenchEngine(static_cast<size_t>(threads));
  FillContext(*engine);
  DecodeFrame frame;
  const double heads_s = HeadsSeconds(*engine, frame);
  const std::vector<float> expected = Logits(*engine);
  const auto& cpus = engine->plan().threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) topology::PinThisThread(cpus[static_cast<size_t>(t)].cpu);
  std::vector<std::span<const Step>> steps;
  for (int t = 0; t < threads; ++t)
    steps.push_back(pipeline::CpuStage::Of(engine->stage())
                        .steps(weight_node::ProgramForm::kFewRows, static_cast<size_t>(t)));
  model::BatchRows rows = frame.rows();
  uint32_t base_epoch = engine->packed().pool().next_base_epoch();
  struct alignas(kFalseSharingBytes) Cursor {
    size_t step = 0;
    bool more = true;
  };
  std::vector<Cursor> cursors(static_cast<size_t>(threads));
  auto step_all = [&] {
    std::fill(cursors.begin(), cursors.end(), Cursor{});
    do {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
      for (int t = 0; t < threads; ++t) {
        const auto i = static_cast<size_t>(t);
        cursors[i].more = WalkSegment(steps[i], cursors[i].step, base_epoch, &rows);
      }
    } while (cursors[0].more);
    base_epoch += static_cast<uint32_t>(engine->plan().config.layers);
  };
  step_all();
  Stopwatch watch(state);
  for (auto _ : state) watch.Time(step_all);
  CheckLogits(state, *engine, expected);
  Report(state, watch, heads_s);
}
#endif

}  // namespace

void RegisterAblation() {
  auto add = [](const char* name, void (*run)(State&)) {
    auto* row = benchmark::RegisterBenchmark(name, run);
    row->ArgName("threads")->UseManualTime()->Unit(benchmark::kMicrosecond);
    for (const int64_t threads : ThreadCounts(std::min<size_t>(2, Cores()))) row->Arg(threads);
  };
  add("waiting/heads", Heads);
  add("waiting/operators", Operators);
#ifdef _OPENMP
  add("waiting/openmp", OpenMpRegions);
#endif
}

}  // namespace larder::bench
