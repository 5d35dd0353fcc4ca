// The whole engine on one machine: decode by batch, prefill, evicted weights, loading, and the cost
// of waiting. Limits of the same run: all threads re-reading their own shards at once (from L3, or
// wherever the shards are), reading DRAM for evicted weights, and the integer peak of all threads
// at once.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "bench/bench_main.h"
#include "bench/engine/engine_under_test.h"
#include "bench/ratio.h"
#include "kernels/tune/vnni_peak.h"
#include "model/synth/synth.h"
#include "pipeline/stage/cpu_stage.h"
#include "threadpool/wait_choice.h"
#include "topology/probe.h"
#include "topology/read_kernels.h"

namespace larder::bench {
namespace {

using benchmark::State;
using pipeline::Engine;
using pipeline::TokenRow;

constexpr double kLimitSeconds = 0.05;
constexpr size_t kTimelineFrames = 64;

EngineBenchOptions g_options;

// The synthetic model's file and the engine on it.
struct Fixture {
  std::string path;
  bool temporary = false;
  size_t threads = 0;
  std::unique_ptr<Engine> engine;
  ~Fixture() {
    engine.reset();
    if (temporary) std::remove(path.c_str());
  }
};
Fixture& TheFixture() {
  static Fixture fixture;
  return fixture;
}

std::vector<int32_t> Tokens(size_t n, size_t vocab) {
  std::mt19937 random(1);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocab);
  return tokens;
}

// The sum over the engine's threads, all reading at once.
double ReadLimitGbps(Engine& engine) {
  double sum = 0;
  for (const auto& shard : engine.packed().ProbeResidency(kLimitSeconds)) sum += shard.reread_gbps;
  return sum;
}

double PeakLimitGops(Engine& engine) {
  struct Context {
    kernels::Isa isa;
    std::vector<double> gops;
  } context{engine.plan().options.isa, std::vector<double>(engine.plan().threads.size())};
  engine.packed().pool().ForEach(
      [](void* raw, int thread) {
        auto& c = *static_cast<Context*>(raw);
        c.gops[static_cast<size_t>(thread)] = kernels::PeakGops(c.isa, kLimitSeconds);
      },
      &context);
  double sum = 0;
  for (const double gops : context.gops) sum += gops;
  return sum;
}

double DramLimitGbps(Engine& engine) {
  static size_t measured_threads = 0;
  static double gbps = 0;
  if (measured_threads != engine.plan().threads.size()) {
    measured_threads = engine.plan().threads.size();
    gbps = topology::MeasureBandwidth(Machine(), Cpus(measured_threads), 0, 0.5).dram_all_gbps;
  }
  return gbps;
}

// Decodes `batch` sequences in parallel, step by step, from an empty context to kBenchGenerate
// tokens, then starts again.
class Decoder {
 public:
  Decoder(Engine& engine, size_t batch)
      : engine_(engine),
        rows_(batch),
        tokens_(Tokens(batch * kBenchGenerate, engine.plan().config.vocab)) {}
  void Step() {
    for (size_t s = 0; s < rows_.size(); ++s) {
      rows_[s] = {tokens_[position_ * rows_.size() + s], SlotId(static_cast<int32_t>(s)),
                  static_cast<uint32_t>(position_), true};
    }
    engine_.Run(rows_);
    position_ = (position_ + 1) % kBenchGenerate;
  }

 private:
  Engine& engine_;
  std::vector<TokenRow> rows_;
  std::vector<int32_t> tokens_;
  size_t position_ = 0;
};

bool InBlock(uint16_t kind) {
  const auto step = static_cast<model::StepKind>(kind);
  return step != model::StepKind::kEmbed && step != model::StepKind::kLmHeadNorm &&
         step != model::StepKind::kLmHead;
}

// The share of the transformer blocks' time in which threads run no step: waiting for flags and
// barriers or a slower thread, and the timeline's own two clock readings per step (about 2 x 10
// ns).
double WaitingShare(Engine& engine, Decoder& decoder) {
  threadpool::Pool& pool = engine.packed().pool();
  const size_t steps =
      pipeline::CpuStage::Of(engine.stage()).steps(weight_node::ProgramForm::kFewRows, 0).size();
  pool.EnableTimeline(2 * steps * kTimelineFrames);  // threads have different numbers of steps
  for (size_t i = 0; i < kTimelineFrames; ++i) decoder.Step();
  std::vector<uint64_t> first(kTimelineFrames, UINT64_MAX), last(kTimelineFrames, 0);
  double busy = 0;
  for (int t = 0; t < pool.threads(); ++t) {
    for (const threadpool::StepTime& step : pool.Timeline(t)) {
      if (!InBlock(step.kind) || step.frame >= kTimelineFrames) continue;
      first[step.frame] = std::min(first[step.frame], step.start_ticks);
      last[step.frame] = std::max(last[step.frame], step.end_ticks);
      busy += static_cast<double>(step.end_ticks - step.start_ticks);
    }
  }
  pool.EnableTimeline(0);
  double total = 0;
  for (size_t f = 0; f < kTimelineFrames; ++f) {
    if (last[f] > first[f]) total += static_cast<double>(last[f] - first[f]);
  }
  return total == 0 ? 0 : 1 - busy / (total * pool.threads());
}

void ReportDecode(State& state, const Stopwatch& watch, Engine& engine, size_t batch,
                  double read_gbps, double peak_gops) {
  const auto rows = static_cast<double>(batch);
  state.counters["tokens/s"] = rows / watch.mean_s();
  state.counters["best tokens/s"] = rows / watch.best_s();
  state.counters["bytes/token"] = static_cast<double>(engine.plan().weight_bytes) / rows;
  SetRate(state, watch, "GB/s", static_cast<double>(engine.plan().weight_bytes), read_gbps,
          "of read");
  SetRate(state, watch, "GOP/s", 2 * WeightsPerToken(engine.plan()) * rows, peak_gops, "of peak");
}

void Decode(State& state) {
  const auto batch = static_cast<size_t>(state.range(1));
  Engine& engine = BenchEngine(static_cast<size_t>(state.range(0)));
  double read = ReadLimitGbps(engine), peak = PeakLimitGops(engine);
  Decoder decoder(engine, batch);
  for (int i = 0; i < 8; ++i) decoder.Step();
  Stopwatch watch(state);
  for (auto _ : state) watch.Time([&] { decoder.Step(); });
  peak = std::max(peak, PeakLimitGops(engine));
  read = std::max(read, ReadLimitGbps(engine));
  ReportDecode(state, watch, engine, batch, read, peak);
  state.counters["waiting"] = WaitingShare(engine, decoder);
}

// Before each step every thread evicts its shard from all caches, which is not timed.
void DecodeEvicted(State& state) {
  const auto batch = static_cast<size_t>(state.range(1));
  Engine& engine = BenchEngine(static_cast<size_t>(state.range(0)));
  const double read = DramLimitGbps(engine), peak = PeakLimitGops(engine);
  struct Context {
    Engine* engine;
    bool flushed;
  } context{&engine, true};
  auto evict = [](void* raw, int thread) {
    auto& c = *static_cast<Context*>(raw);
    const auto weights = c.engine->packed().weights().shards(static_cast<size_t>(thread)).weights();
    if (!topology::FlushFromCaches(weights.data(), weights.size()) && thread == 0)
      c.flushed = false;
  };
  Decoder decoder(engine, batch);
  decoder.Step();
  Stopwatch watch(state);
  for (auto _ : state) {
    engine.packed().pool().ForEach(evict, &context);
    watch.Time([&] { decoder.Step(); });
  }
  if (!context.flushed)
    return state.SkipWithError("this CPU has no clflushopt: weights cannot be evicted");
  ReportDecode(state, watch, engine, batch, read, peak);
}

void Prefill(State& state) {
  const auto prompt = static_cast<size_t>(state.range(1));
  Engine& engine = BenchEngine(static_cast<size_t>(state.range(0)));
  const std::vector<int32_t> tokens = Tokens(prompt, engine.plan().config.vocab);
  std::vector<TokenRow> rows(prompt);
  for (size_t i = 0; i < prompt; ++i) {
    rows[i] = {tokens[i], SlotId(0), static_cast<uint32_t>(i), i + 1 == prompt};
  }
  double peak = PeakLimitGops(engine);
  engine.Run(rows);
  Stopwatch watch(state);
  for (auto _ : state) watch.Time([&] { engine.Run(rows); });
  peak = std::max(peak, PeakLimitGops(engine));
  const auto n = static_cast<double>(prompt);
  state.counters["tokens/s"] = n / watch.mean_s();
  state.counters["best tokens/s"] = n / watch.best_s();
  // Only the last row wants logits: the others end behind the last layer's attention.
  const model::ModelConfig& c = engine.plan().config;
  const model::LayerSizes& last = c.layer(c.layers - 1).sizes;
  const auto behind = static_cast<double>(c.dim * (last.q_rows() + 3 * last.ffn) + c.vocab * c.dim);
  SetRate(state, watch, "GOP/s", 2 * (WeightsPerToken(engine.plan()) * n - behind * (n - 1)), peak,
          "of peak");
}

void RegisterAll() {
  const std::vector<int64_t> threads = ThreadCounts(1);
  auto add = [&](const char* name, void (*run)(State&), const char* arg,
                 std::vector<int64_t> values) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgNames({"threads", arg})
        ->ArgsProduct({threads, values})
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  add("decode", Decode, "batch", {1, 8, 32});
  add("decode_evicted", DecodeEvicted, "batch", {1, 8});
  add("prefill", Prefill, "prompt", {kBenchPrompt});
  RegisterBusy();
  RegisterAblation();
  RegisterLoad();
  RegisterSeparation();
}

// Removes our own flags from argv.
void ParseFlags(int& argc, char** argv) {
  EngineBenchOptions options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--model=")) {
      options.model = word.substr(8);
    } else if (word.starts_with("--shape=")) {
      options.shape = word.substr(8);
    } else if (word == "--isolated") {
      options.isolated = true;
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  SetEngineBenchOptions(options);
}

}  // namespace

void SetEngineBenchOptions(const EngineBenchOptions& options) { g_options = options; }
const EngineBenchOptions& GetEngineBenchOptions() { return g_options; }

const std::string& BenchModelPath() {
  Fixture& fixture = TheFixture();
  if (!fixture.path.empty()) return fixture.path;
  if (!g_options.model.empty()) return fixture.path = g_options.model;
  std::string path = (std::filesystem::temp_directory_path() / "larder-bench-XXXXXX").string();
  const int fd = mkstemp(path.data());
  if (fd < 0) throw Error("{}: cannot be made: {}; set TMPDIR", path, std::strerror(errno));
  close(fd);
  fixture.path = path;
  fixture.temporary = true;
  model::SynthOptions synth;
  synth.shape = model::ShapeByName(g_options.shape);
  synth.name = g_options.shape;
  model::WriteSynth(synth, path);
  return fixture.path;
}

std::unique_ptr<Engine> MakeBenchEngine(size_t threads, size_t slots) {
  const auto file = model::GgufFile::Open(BenchModelPath());
  pipeline::PlanOptions options;
  options.threads = threads;
  options.capacity.slots = slots;
  options.capacity.context = kBenchContext;
  const pipeline::StagePlan plan =
      pipeline::MakeStagePlan(model::ReadModelConfig(*file), Machine(), options);
  pipeline::ChainOptions stage;
  stage.wait = threadpool::ChooseWaitPolicy(Machine(), Cpus(threads), g_options.isolated);
  return std::make_unique<Engine>(file, plan, stage);
}

Engine& BenchEngine(size_t threads) {
  Fixture& fixture = TheFixture();
  if (!fixture.engine || fixture.threads != threads) {
    fixture.engine.reset();  // ends the old pool's threads first
    fixture.engine = MakeBenchEngine(threads);
    fixture.threads = threads;
  }
  return *fixture.engine;
}

void DropBenchEngine() { TheFixture().engine.reset(); }

double WeightsPerToken(const pipeline::StagePlan& plan) {
  const model::ModelConfig& c = plan.config;
  return static_cast<double>(c.Sum(&model::LayerSpec::matrix_parameters) + c.vocab * c.dim);
}

}  // namespace larder::bench

int main(int argc, char** argv) {
  using namespace larder::bench;
  if (argc == 4 && std::strcmp(argv[1], "--measure-load") == 0) {
    return MeasureLoad(argv[2], static_cast<size_t>(std::atoi(argv[3])));
  }
  ParseFlags(argc, argv);
  return RunBenchmarks(argc, argv, RegisterAll);
}
