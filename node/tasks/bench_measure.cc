#include "node/tasks/bench_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/tune/vnni_peak.h"
#include "model/step/step_kind.h"
#include "node/service/signals.h"
#include "node/tasks/given_sequences.h"
#include "pipeline/scheduler/scheduler.h"
#include "weight_node/shard_plan.h"

namespace larder::node::inline tasks {
namespace {

constexpr double kShardBudgetS = 0.3, kPeakBudgetS = 0.1;
constexpr size_t kTimelineSteps = size_t{1} << 20;  // per thread; 32 MB

// A random prompt, continued with random tokens: none of a step's time is a sampler's.
class RandomText : public pipeline::Sequence {
 public:
  // tokens: how many calls of Next it wants.
  RandomText(std::vector<int32_t> prompt, uint64_t tenant, size_t tokens, size_t vocab,
             std::mt19937& random, std::string& error)
      : prompt_(std::move(prompt)),
        tenant_(tenant),
        tokens_(tokens),
        vocab_(vocab),
        random_(random),
        error_(error) {}

  std::span<const int32_t> prompt() const override { return prompt_; }
  uint64_t tenant() const override { return tenant_; }
  bool cancelled() const override { return Interrupts() > 0; }
  void Admitted(size_t /*reused*/) override {}
  std::optional<int32_t> Next(std::span<const float> /*logits*/) override {
    if (--tokens_ == 0) return std::nullopt;
    return static_cast<int32_t>(random_() % vocab_);
  }
  void Ended(pipeline::SequenceEnd end, const std::string& why) override {
    if (end != pipeline::SequenceEnd::kComplete && end != pipeline::SequenceEnd::kCancelled)
      error_ = why;
  }

 private:
  const std::vector<int32_t> prompt_;
  const uint64_t tenant_;
  size_t tokens_;
  const size_t vocab_;
  std::mt19937& random_;
  std::string& error_;
};

// Tests as requests to a scheduler: what is measured is the loop that `run` and `serve` decode
// with. The first `depth` tokens of a prompt are in its slot's KV cache already, and are reused as
// any prefix is.
class Bench {
 public:
  explicit Bench(pipeline::Engine& engine)
      : scheduler_(engine, {.patience_ms = 0}), vocab_(engine.plan().config.vocab) {}

  // Fills a slot for each sequence of the test with a KV cache of `depth` tokens.
  void FillDepth(const BenchTest& test) {
    prefixes_.clear();
    for (size_t i = 0; i < test.batch; ++i) prefixes_.push_back(RandomTokens({}, test.depth));
    ++tenant_;  // so that nothing of other tests is reused
    if (test.depth > 0) Run(0, 1);
  }

  // Returns the seconds of one repetition. Each repetition rewrites the positions after `depth`.
  double Measure(const BenchTest& test) {
    if (test.depth == 0) ++tenant_;
    // The first of the tokens to decode ends the prompt.
    return test.decode ? Run(1, test.tokens) : Run(test.tokens, 1);
  }

 private:
  std::vector<int32_t> RandomTokens(std::vector<int32_t> tokens, size_t more) {
    for (size_t i = 0; i < more; ++i) tokens.push_back(static_cast<int32_t>(random_() % vocab_));
    return tokens;
  }

  // Runs all sequences: each has its prefix and `more` tokens as its prompt. Returns the seconds.
  double Run(size_t more, size_t steps) {
    GivenSequences sequences;
    std::string error;
    for (const auto& prefix : prefixes_) {
      sequences.Add(std::make_unique<RandomText>(RandomTokens(prefix, more), tenant_, steps, vocab_,
                                                 random_, error));
    }
    const int64_t start = NowNs();
    scheduler_.Run(sequences);
    const double seconds = SecondsSince(start);
    if (!error.empty()) throw Error("{}", error);
    return seconds;
  }

  pipeline::Scheduler scheduler_;
  size_t vocab_;
  uint64_t tenant_ = 0;
  std::mt19937 random_{1};
  std::vector<std::vector<int32_t>> prefixes_;  // [sequence]
};

// Bytes read by a decode step: the weights once per micro-batch, and the keys and values of every
// sequence at the middle of the run.
double BytesPerStep(pipeline::Engine& engine, const BenchTest& test) {
  const pipeline::StagePlan& plan = engine.plan();
  const size_t frame = std::min(engine.max_logits(), engine.max_batch_tokens());
  const auto frames = static_cast<double>(CeilDiv(test.batch, frame));
  const double token_bytes =
      static_cast<double>(plan.kv_slot_bytes) / static_cast<double>(plan.options.capacity.context);
  const double mean_length =
      static_cast<double>(test.depth) + (static_cast<double>(test.tokens) + 1) / 2;
  return plan.ReadBytes(CeilDiv(test.batch, CeilDiv(test.batch, frame))) * frames +
         static_cast<double>(test.batch) * mean_length * token_bytes;
}

size_t ElementsOf(const model::LayerSpec& layer, std::initializer_list<model::TensorRole> roles) {
  size_t sum = 0;
  for (const model::TensorRole role : roles)
    if (const model::TensorSpec* tensor = layer.Find(role); tensor != nullptr && !tensor->shared)
      sum += tensor->rows * tensor->cols;
  return sum;
}

// The weights that a token is multiplied with behind a layer's attention.
size_t BehindAttention(const model::LayerSpec& layer) {
  using enum model::TensorRole;
  return layer.active_parameters() -
         ElementsOf(layer, {kQ, kK, kV, kOutputGate, kAlpha, kBeta, kStateQ, kStateK, kStateV,
                            kQueryDown, kKeyUp});
}

// 2 operations per weight that a token is multiplied with. The embedding table is looked up, and in
// prefill the lm_head runs for the last token only: neither counts.
double OperationsPerToken(const model::ModelConfig& config, const BenchTest& test) {
  const auto table = static_cast<double>(config.vocab * config.dim);
  double weights = static_cast<double>(config.parameters());
  if (!config.tied_embeddings) weights -= table;
  weights -= static_cast<double>(config.Sum([](const model::LayerSpec& layer) {
    return layer.matrix_parameters() - layer.active_parameters();
  }));
  if (test.decode) return 2 * weights;
  weights -= table;
  // In the last layer, only the token whose logits are wanted goes on behind attention.
  if (config.layers == 0) return 2 * weights;  // a chain's ends
  const size_t behind = BehindAttention(config.layer(config.layers - 1));
  return 2 * (weights - static_cast<double>(behind) * (1 - 1 / static_cast<double>(test.tokens)));
}

// The parts of a breakdown, each of one or several kinds of steps and laps.
struct PartKinds {
  const char* name;
  std::vector<model::StepKind> kinds;
};
const std::vector<PartKinds>& PartsOfAStep() {
  using enum model::StepKind;
  static const std::vector<PartKinds> parts = {
      {"embedding, frame in and out", {kEmbed, kReceive, kSend}},
      {"norm", {kNorm, kLmHeadNorm}},
      {"quantise", {kQuantize}},
      {"product q, k, v", {kQkv}},
      {"rope and append", {kAppend, kQueries}},
      {"scores", {kScores}},
      {"softmax", {kSoftmax}},
      {"values", {kValues}},
      {"merge and finish", {kMerge, kAttention}},
      {"state", {kState}},
      {"product o", {kO}},
      {"routing", {kRoute}},
      {"product gate, up", {kGateUp}},
      {"activation, quantise", {kActivation}},
      {"product down", {kDown}},
      {"layer inputs", {kLayerInput}},
      {"product lm_head", {kLmHead}}};
  return parts;
}

// Microseconds of a step: each part's, the mean over the threads, and at the end what of the step
// is left.
struct StepParts {
  double step_us = 0;
  std::vector<double> part_us;  // [part], and waiting
};

// The parts of each step that the threads recorded since the timeline was enabled.
std::vector<StepParts> RecordedSteps(const threadpool::Pool& pool) {
  const std::vector<PartKinds>& parts = PartsOfAStep();
  std::vector<size_t> part_of_kind;
  for (size_t p = 0; p < parts.size(); ++p) {
    for (const model::StepKind kind : parts[p].kinds) {
      const auto k = static_cast<size_t>(kind);
      if (k >= part_of_kind.size()) part_of_kind.resize(k + 1, parts.size());
      part_of_kind[k] = p;
    }
  }
  std::vector<uint64_t> first, last;  // [step]
  std::vector<StepParts> steps;
  const double us = 1e6 / threadpool::Pool::TicksPerSecond();
  for (int t = 0; t < pool.threads(); ++t) {
    for (const threadpool::StepTime& time : pool.Timeline(t)) {
      if (time.frame >= steps.size()) {
        first.resize(time.frame + 1, UINT64_MAX);
        last.resize(time.frame + 1, 0);
        steps.resize(time.frame + 1, {.part_us = std::vector<double>(parts.size() + 1, 0.0)});
      }
      first[time.frame] = std::min(first[time.frame], time.start_ticks);
      last[time.frame] = std::max(last[time.frame], time.end_ticks);
      const size_t part = time.kind < part_of_kind.size() ? part_of_kind[time.kind] : parts.size();
      if (part < parts.size()) {
        steps[time.frame].part_us[part] +=
            static_cast<double>(time.end_ticks - time.start_ticks) * us / pool.threads();
      }
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (last[i] > first[i]) steps[i].step_us = static_cast<double>(last[i] - first[i]) * us;
    const double worked = std::accumulate(steps[i].part_us.begin(), steps[i].part_us.end(), 0.0);
    steps[i].part_us.back() = std::max(0.0, steps[i].step_us - worked);
  }
  return steps;
}

// Keeps the fastest seen of each part of each step.
void KeepFastest(std::vector<StepParts>& best, const std::vector<StepParts>& repetition) {
  if (best.empty()) best = repetition;
  best.resize(std::min(best.size(), repetition.size()));
  for (size_t i = 0; i < best.size(); ++i) {
    best[i].step_us = std::min(best[i].step_us, repetition[i].step_us);
    for (size_t p = 0; p < best[i].part_us.size(); ++p)
      best[i].part_us[p] = std::min(best[i].part_us[p], repetition[i].part_us[p]);
  }
}

Breakdown MeanOf(const std::vector<StepParts>& steps, const BenchTest& test) {
  const std::vector<PartKinds>& parts = PartsOfAStep();
  Breakdown result;
  result.test = test;
  result.steps = steps.size();
  for (const PartKinds& part : parts) result.parts.push_back({.name = part.name});
  result.parts.push_back({.name = "waiting: barriers, flags"});
  for (const StepParts& step : steps) {
    const auto count = static_cast<double>(steps.size());
    result.step_us += step.step_us / count;
    for (size_t p = 0; p < step.part_us.size(); ++p) result.parts[p].us += step.part_us[p] / count;
  }
  return result;
}

// The peak of all of the pool's threads at once.
double PeakOfThreads(threadpool::Pool& pool, kernels::Isa isa) {
  struct Context {
    kernels::Isa isa;
    std::vector<double> gops;
  } context{isa, std::vector<double>(static_cast<size_t>(pool.threads()))};
  pool.ForEach(
      [](void* at, int thread) {
        auto& c = *static_cast<Context*>(at);
        c.gops[static_cast<size_t>(thread)] = kernels::PeakGops(c.isa, kPeakBudgetS);
      },
      &context);
  return std::accumulate(context.gops.begin(), context.gops.end(), 0.0);
}

// Sets the limits of the products.
void SetLimits(const model::ModelConfig& config, double peak_gops, double reread_gbps,
               Breakdown& breakdown) {
  breakdown.peak_gops = peak_gops;
  breakdown.reread_gbps = reread_gbps;
  const BenchTest& test = breakdown.test;
  const double steps = static_cast<double>(breakdown.steps);
  const double rows = static_cast<double>(test.tokens * test.batch) / steps;  // rows per step
  const double logit_rows = test.decode ? rows : 1 / steps;
  // The last layer's products behind attention are of logit rows only.
  const double layers = static_cast<double>(config.layers),
               behind = (layers - 1) * rows / layers + logit_rows / layers;
  // A step without logits reads no lm_head, and nothing behind the last attention.
  const double reads = std::min(1.0, logit_rows), reads_behind = (layers - 1 + reads) / layers;
  const auto set = [&](const char* name, std::initializer_list<weight_node::PanelMatrix> matrices,
                       size_t weights, double of_rows, double of_reads) {
    for (Breakdown::Part& part : breakdown.parts) {
      if (part.name != name) continue;
      if (peak_gops > 0)
        part.limit_us = 2 * static_cast<double>(weights) * of_rows / peak_gops * 1e-3;
      double bytes = 0;
      for (const weight_node::PanelMatrix matrix : matrices) {
        bytes += weight_node::ReadBytes(config, matrix,
                                        std::max<size_t>(1, static_cast<size_t>(of_rows)));
      }
      if (reread_gbps > 0)
        part.limit_us = std::max(part.limit_us, bytes * of_reads / reread_gbps * 1e-3);
    }
  };
  using weight_node::PanelMatrix;
  const size_t qkv_rows = config.Sum([](const model::LayerSpec& layer) {
    return weight_node::LayerShape(layer).rows_of_groups();
  });
  const size_t q_rows =
      config.Sum([](const model::LayerSpec& layer) { return layer.output_size(); });
  const size_t ffn = config.Sum([](const model::LayerSpec& layer) {
    const model::ExpertSpec& experts = layer.experts;
    return layer.sizes.ffn * std::max<size_t>(1, experts.used) + experts.shared_ffn;
  });
  // Of latent attention.
  const size_t queries = config.Sum([](const model::LayerSpec& layer) {
    return ElementsOf(layer, {model::TensorRole::kKeyUp}) +
           (layer.latent.query_rank == 0 ? 0 : ElementsOf(layer, {model::TensorRole::kQ}));
  });
  const size_t values = config.Sum([](const model::LayerSpec& layer) {
    return ElementsOf(layer, {model::TensorRole::kValueUp});
  });
  set("product q, k, v", {PanelMatrix::kQkv, PanelMatrix::kQueryUp, PanelMatrix::kKeyUp},
      config.dim * qkv_rows + queries, rows, 1);
  set("product o", {PanelMatrix::kO, PanelMatrix::kValueUp}, config.dim * q_rows + values, behind,
      reads_behind);
  const size_t up = config.layer(0).gated() ? 2 * ffn : ffn;
  set("product gate, up", {PanelMatrix::kFfn, PanelMatrix::kSharedFfn}, config.dim * up, behind,
      reads_behind);
  set("product down", {PanelMatrix::kDown, PanelMatrix::kSharedDown}, config.dim * ffn, behind,
      reads_behind);
  set("product lm_head", {PanelMatrix::kLmHead}, config.dim * config.vocab, logit_rows, reads);
}

// Of all sockets' weights; nullopt: of one of them there is no figure.
std::optional<double> LiveShare(const pipeline::Engine& engine) {
  SocketCounters all = pipeline::LoadCounters(engine.status());
  if (engine.client()) {
    for (size_t i = 0; i < engine.client()->stages(); ++i) {
      const SocketCounters stage = pipeline::LoadCounters(engine.client()->stage_status(i));
      if (!stage.live_resident_share() || !all.live_resident_share()) return std::nullopt;
      all.weight_bytes += stage.weight_bytes;
      all.live_resident_bytes += stage.live_resident_bytes;
    }
  }
  return all.live_resident_share();
}

}  // namespace

std::string BenchTest::name() const {
  std::string out = fmt::format("{}{}", decode ? "tg" : "pp", tokens);
  if (batch > 1) out += fmt::format(" b{}", batch);
  if (depth > 0) out += fmt::format(" @ d{}", depth);
  return out;
}

double BenchResult::median() const {
  std::vector<double> sorted = tokens_per_s;
  std::sort(sorted.begin(), sorted.end());
  const size_t n = sorted.size();
  if (n == 0) return 0;
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double squares = 0;
  for (const double x : values) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double BenchResult::gbps() const {
  return test.decode ? bytes_per_step * median() / static_cast<double>(test.batch) * 1e-9 : 0;
}
double Breakdown::sum_us() const {
  double sum = 0;
  for (const Part& part : parts) sum += part.us;
  return sum;
}

double Breakdown::products_us() const {
  double sum = 0;
  for (const Part& part : parts) sum += part.limit_us > 0 ? part.us : 0;
  return sum;
}

double Breakdown::products_limit_us() const {
  double sum = 0;
  for (const Part& part : parts) sum += part.limit_us;
  return sum;
}

double BenchResult::gops() const { return operations_per_token * median() * 1e-9; }

void MeasureBench(pipeline::Engine& engine, const BenchSpec& spec, BenchRun& run,
                  const std::function<bool(const BenchTest&, size_t repetition)>& go_on) {
  Bench bench(engine);
  run.max_batch_tokens = engine.max_batch_tokens();
  for (const BenchTest& test : spec.tests) {
    BenchResult result;
    result.test = test;
    result.operations_per_token = OperationsPerToken(engine.plan().config, test);
    // A chain's weights are read by its stages, some of which may be in other processes.
    if (test.decode && !engine.client()) result.bytes_per_step = BytesPerStep(engine, test);
    if (!go_on(test, 0)) return;
    bench.FillDepth(test);
    bench.Measure(test);
    const auto tokens = static_cast<double>(test.tokens * test.batch);
    for (size_t r = 0; r < spec.repetitions; ++r) {
      if (!go_on(test, r + 1)) return;
      const double seconds = bench.Measure(test);
      if (Interrupts() > 0) return;  // interrupted: the repetition does not count
      result.seconds.push_back(seconds);
      result.tokens_per_s.push_back(tokens / seconds);
    }
    result.resident_share = LiveShare(engine);
    run.results.push_back(std::move(result));
  }
  if (engine.client()) return;
  for (const auto& shard : engine.packed().ProbeResidency(kShardBudgetS))
    run.shard_gbps += shard.reread_gbps;
}

std::vector<Breakdown> MeasureBreakdown(
    pipeline::Engine& engine, const BenchSpec& spec,
    const std::function<bool(const BenchTest&, size_t repetition)>& go_on) {
  if (engine.client() || !engine.plan().attention.empty()) {
    throw Error(
        "--breakdown: the model's layers or its attention run in other sockets, whose time is not "
        "in this process; expected one socket that does everything: leave out --manifest");
  }
  threadpool::Pool& pool = engine.packed().pool();
  const double peak_gops = PeakOfThreads(pool, engine.plan().options.isa);
  double reread_gbps = 0;
  for (const auto& shard : engine.packed().ProbeResidency(kShardBudgetS))
    reread_gbps += shard.reread_gbps;
  Bench bench(engine);
  std::vector<Breakdown> results;
  for (const BenchTest& test : spec.tests) {
    if (!go_on(test, 0)) return results;
    bench.FillDepth(test);
    bench.Measure(test);
    std::vector<StepParts> best;
    for (size_t r = 0; r < spec.repetitions && go_on(test, r + 1); ++r) {
      pool.EnableTimeline(kTimelineSteps);
      bench.Measure(test);
      if (Interrupts() > 0) break;  // interrupted: the repetition does not count
      for (int t = 0; t < pool.threads(); ++t) {
        if (pool.Timeline(t).size() < kTimelineSteps) continue;
        throw Error("--breakdown: {} has more than {} parts to time; measure fewer tokens",
                    test.name(), kTimelineSteps);
      }
      KeepFastest(best, RecordedSteps(pool));
    }
    pool.EnableTimeline(0);
    if (best.empty()) return results;
    results.push_back(MeanOf(best, test));
    SetLimits(engine.plan().config, peak_gops, reread_gbps, results.back());
  }
  return results;
}

std::vector<BenchRouting> MeasureRouting(
    pipeline::Engine& engine, const BenchSpec& spec,
    const std::function<bool(const BenchTest&, size_t repetition)>& go_on) {
  const auto counts = [&] {
    engine.FetchExpertCounts();
    return engine.expert_counts();
  };
  if (engine.expert_counts().empty())
    throw Error("--experts: {} has no experts", engine.plan().config.name);
  Bench bench(engine);
  std::vector<BenchRouting> results;
  for (const BenchTest& test : spec.tests) {
    if (!go_on(test, 0)) return results;
    bench.FillDepth(test);
    const std::vector<ExpertCounts> before = counts();
    for (size_t r = 0; r < spec.repetitions && go_on(test, r + 1); ++r) bench.Measure(test);
    if (Interrupts() > 0) return results;
    BenchRouting result{.test = test, .layers = counts()};
    for (size_t i = 0; i < before.size(); ++i) result.layers[i] = result.layers[i].Since(before[i]);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace larder::node::tasks
