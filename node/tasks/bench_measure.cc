#include "node/tasks/bench_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "model/layer/step_kind.h"
#include "node/service/signals.h"
#include "node/tasks/given_sequences.h"
#include "pipeline/engine/scheduler.h"

namespace larder::node::inline tasks {
namespace {

constexpr double kShardBudgetS = 0.3;
constexpr size_t kTimelineSteps = size_t{1} << 20;  // per thread; 32 MB

// A random prompt, continued with random tokens: none of a step's time is a sampler's.
class RandomText : public pipeline::Sequence {
 public:
  // tokens: how many calls of Next it wants.
  RandomText(std::vector<int32_t> prompt, uint64_t tenant, size_t tokens, size_t vocab, std::mt19937& random,
             std::string& error)
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
    if (end != pipeline::SequenceEnd::kComplete && end != pipeline::SequenceEnd::kCancelled) error_ = why;
  }

 private:
  const std::vector<int32_t> prompt_;
  const uint64_t tenant_;
  size_t tokens_;
  const size_t vocab_;
  std::mt19937& random_;
  std::string& error_;
};

// Tests as requests to a scheduler: what is measured is the loop that `run` and `serve` decode with. The
// first `depth` tokens of a prompt are in its slot's KV cache already, and are reused as any prefix is.
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
      sequences.Add(
          std::make_unique<RandomText>(RandomTokens(prefix, more), tenant_, steps, vocab_, random_, error));
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

// Bytes read by a decode step: the weights once per micro-batch, and the keys and values of every sequence at
// the middle of the run.
double BytesPerStep(pipeline::Engine& engine, const BenchTest& test) {
  const pipeline::StagePlan& plan = engine.plan();
  const size_t frame = std::min(engine.max_logits(), engine.max_rows());
  const auto frames = static_cast<double>(CeilDiv(test.batch, frame));
  const double token_bytes =
      static_cast<double>(plan.kv_slot_bytes) / static_cast<double>(plan.options.context);
  const double mean_length = static_cast<double>(test.depth) + (static_cast<double>(test.tokens) + 1) / 2;
  return static_cast<double>(plan.weight_bytes) * frames +
         static_cast<double>(test.batch) * mean_length * token_bytes;
}

// 2 operations per weight that a token is multiplied with. The embedding table is looked up, and in prefill
// the lm_head runs for the last token only: neither counts.
double OperationsPerToken(const model::ModelConfig& config, const BenchTest& test) {
  const auto table = static_cast<double>(config.vocab * config.dim);
  double weights = static_cast<double>(config.parameters());
  if (!config.tied_embeddings) weights -= table;
  if (!test.decode) weights -= table;
  return 2 * weights;
}

// The parts of a breakdown, each of one or several kinds of steps and laps.
struct PartKinds {
  const char* name;
  std::vector<model::StepKind> kinds;
};
const std::vector<PartKinds>& PartsOfAStep() {
  using enum model::StepKind;
  static const std::vector<PartKinds> parts = {{"embedding, frame in and out", {kEmbed, kReceive, kSend}},
                                               {"norm", {kNorm, kHeadNorm}},
                                               {"quantise", {kQuantize}},
                                               {"product q, k, v", {kQkv}},
                                               {"rope and append", {kAppend, kQueries}},
                                               {"scores", {kScores}},
                                               {"softmax", {kSoftmax}},
                                               {"values", {kValues}},
                                               {"merge and finish", {kMerge, kAttention}},
                                               {"product o", {kO}},
                                               {"product gate, up", {kGateUp}},
                                               {"activation, quantise", {kActivation}},
                                               {"product down", {kDown}},
                                               {"product lm_head", {kHead}}};
  return parts;
}

// Of what all threads recorded since the timeline was enabled.
Breakdown BreakdownOf(const threadpool::Pool& pool, const BenchTest& test) {
  std::vector<uint64_t> first, last;  // [frame]
  std::vector<double> ticks;          // [kind]
  for (int t = 0; t < pool.threads(); ++t) {
    for (const threadpool::StepTime& step : pool.Timeline(t)) {
      if (step.frame >= first.size()) {
        first.resize(step.frame + 1, UINT64_MAX);
        last.resize(step.frame + 1, 0);
      }
      first[step.frame] = std::min(first[step.frame], step.start_ticks);
      last[step.frame] = std::max(last[step.frame], step.end_ticks);
      if (step.kind >= ticks.size()) ticks.resize(step.kind + 1, 0);
      ticks[step.kind] += static_cast<double>(step.end_ticks - step.start_ticks);
    }
  }
  Breakdown result;
  result.test = test;
  result.steps = std::max<size_t>(1, first.size());
  const double us = 1e6 / threadpool::Pool::TicksPerSecond() / static_cast<double>(result.steps);
  for (size_t f = 0; f < first.size(); ++f) {
    if (last[f] > first[f]) result.step_us += static_cast<double>(last[f] - first[f]) * us;
  }
  double waiting = result.step_us;
  for (const PartKinds& part : PartsOfAStep()) {
    double sum = 0;
    for (const model::StepKind kind : part.kinds) {
      const auto k = static_cast<size_t>(kind);
      if (k < ticks.size()) sum += ticks[k] * us / pool.threads();
    }
    result.parts.push_back({part.name, sum});
    waiting -= sum;
  }
  result.parts.push_back({"waiting: barriers, flags", std::max(0.0, waiting)});
  return result;
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
double BenchResult::gops() const { return operations_per_token * median() * 1e-9; }

void MeasureBench(pipeline::Engine& engine, const BenchSpec& spec, BenchRun& run,
                  const std::function<bool(const BenchTest&, size_t repetition)>& go_on) {
  Bench bench(engine);
  run.max_batch_tokens = engine.max_rows();
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
    run.results.push_back(std::move(result));
  }
  if (engine.client()) return;
  for (const auto& shard : engine.packed().ProbeResidency(kShardBudgetS)) run.shard_gbps += shard.reread_gbps;
}

std::vector<Breakdown> MeasureBreakdown(
    pipeline::Engine& engine, const BenchSpec& spec,
    const std::function<bool(const BenchTest&, size_t repetition)>& go_on) {
  if (engine.client() || !engine.plan().attention.empty()) {
    throw Error(
        "--breakdown: the model's layers or its attention run in other sockets, whose time is not in this "
        "process; expected one socket that does everything: leave out --manifest");
  }
  threadpool::Pool& pool = engine.packed().pool();
  Bench bench(engine);
  std::vector<Breakdown> results;
  for (const BenchTest& test : spec.tests) {
    if (!go_on(test, 0)) return results;
    bench.FillDepth(test);
    bench.Measure(test);
    std::optional<Breakdown> fastest;
    for (size_t r = 0; r < spec.repetitions && go_on(test, r + 1); ++r) {
      pool.EnableTimeline(kTimelineSteps);
      bench.Measure(test);
      if (Interrupts() > 0) break;  // interrupted: the repetition does not count
      for (int t = 0; t < pool.threads(); ++t) {
        if (pool.Timeline(t).size() < kTimelineSteps) continue;
        throw Error("--breakdown: {} has more than {} parts to time; measure fewer tokens", test.name(),
                    kTimelineSteps);
      }
      Breakdown one = BreakdownOf(pool, test);
      if (!fastest || one.step_us < fastest->step_us) fastest = std::move(one);
    }
    pool.EnableTimeline(0);
    if (!fastest) return results;
    results.push_back(*std::move(fastest));
  }
  return results;
}

}  // namespace larder::node::tasks
