#include "node/bench_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>

#include "base/clock.h"
#include "node/signals.h"

namespace larder::node {
namespace {

constexpr double kShardBudgetS = 0.3;

class Bench {
 public:
  explicit Bench(pipeline::Engine& engine) : engine_(engine), vocab_(engine.plan().config.vocab) {}

  // KV cache of `depth` tokens in each slot of the test.
  void FillDepth(const BenchTest& test) {
    for (size_t slot = 0; slot < test.batch; ++slot) {
      engine_.Reset(static_cast<int32_t>(slot));
      if (test.depth > 0) Prefill(slot, 0, test.depth, false);
    }
  }

  // Seconds of one repetition. Every repetition rewrites the positions after `depth`.
  double Measure(const BenchTest& test) {
    if (!test.decode) {
      const int64_t start = NowNs();
      Prefill(0, test.depth, test.tokens, true);
      return SecondsSince(start);
    }
    const int64_t start = NowNs();
    for (size_t step = 0; step < test.tokens && Interrupts() == 0; ++step)
      DecodeStep(test, test.depth + step);
    return SecondsSince(start);
  }

 private:
  int32_t RandomToken() { return static_cast<int32_t>(random_() % vocab_); }

  void Prefill(size_t slot, size_t position, size_t count, bool logits) {
    rows_.clear();
    for (size_t i = 0; i < count; ++i) {
      rows_.push_back({RandomToken(), static_cast<int32_t>(slot), static_cast<uint32_t>(position + i),
                       logits && i + 1 == count});
    }
    // Frame by frame, as Run would split it, so that Ctrl-C is seen between frames.
    for (size_t begin = 0; begin < count && Interrupts() == 0; begin += engine_.stage().max_rows()) {
      engine_.Run(std::span(rows_).subspan(begin, std::min(engine_.stage().max_rows(), count - begin)));
    }
  }

  // One token for each sequence; batches beyond a frame's logits go in several frames.
  void DecodeStep(const BenchTest& test, size_t position) {
    for (size_t begin = 0; begin < test.batch; begin += engine_.max_logits()) {
      rows_.clear();
      for (size_t slot = begin; slot < std::min(test.batch, begin + engine_.max_logits()); ++slot) {
        rows_.push_back({RandomToken(), static_cast<int32_t>(slot), static_cast<uint32_t>(position), true});
      }
      engine_.Run(rows_);
    }
  }

  pipeline::Engine& engine_;
  size_t vocab_;
  std::mt19937 random_{1};
  std::vector<pipeline::TokenRow> rows_;
};

// Of a decode step: the weights once for each frame that it takes, and every sequence's keys and values, in
// the middle of the run.
double BytesPerStep(pipeline::Engine& engine, const BenchTest& test) {
  const pipeline::Plan& plan = engine.plan();
  const size_t frame = std::min(engine.max_logits(), engine.stage().max_rows());
  const auto frames = static_cast<double>(CeilDiv(test.batch, frame));
  const double token_bytes =
      static_cast<double>(plan.kv_slot_bytes) / static_cast<double>(plan.options.context);
  const double mean_length = static_cast<double>(test.depth) + (static_cast<double>(test.tokens) + 1) / 2;
  return static_cast<double>(plan.weight_bytes) * frames +
         static_cast<double>(test.batch) * mean_length * token_bytes;
}

// 2 for each weight that a token is multiplied with: not the embedding table, which is looked up, and in
// prefill not the head, which only the last token needs.
double OperationsPerToken(const model::ModelConfig& config, const BenchTest& test) {
  const auto table = static_cast<double>(config.vocab * config.dim);
  double weights = static_cast<double>(config.parameters());
  if (!config.tied_embeddings) weights -= table;
  if (!test.decode) weights -= table;
  return 2 * weights;
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

double BenchResult::mean() const {
  if (tokens_per_s.empty()) return 0;
  return std::accumulate(tokens_per_s.begin(), tokens_per_s.end(), 0.0) /
         static_cast<double>(tokens_per_s.size());
}

double BenchResult::deviation() const {
  if (tokens_per_s.size() < 2) return 0;
  const double m = mean();
  double squares = 0;
  for (const double x : tokens_per_s) squares += (x - m) * (x - m);
  return std::sqrt(squares / static_cast<double>(tokens_per_s.size() - 1));
}

double BenchResult::gbps() const {
  return test.decode ? bytes_per_step * median() / static_cast<double>(test.batch) * 1e-9 : 0;
}
double BenchResult::gops() const { return operations_per_token * median() * 1e-9; }

void MeasureBench(pipeline::Engine& engine, const BenchSpec& spec, BenchRun& run,
                  const std::function<bool(const BenchTest&, size_t repetition)>& go_on) {
  Bench bench(engine);
  run.rows_per_frame = engine.stage().max_rows();
  for (const BenchTest& test : spec.tests) {
    BenchResult result;
    result.test = test;
    result.operations_per_token = OperationsPerToken(engine.plan().config, test);
    if (test.decode) result.bytes_per_step = BytesPerStep(engine, test);
    if (!go_on(test, 0)) return;
    bench.FillDepth(test);
    bench.Measure(test);
    const auto tokens = static_cast<double>(test.tokens * test.batch);
    for (size_t r = 0; r < spec.repetitions; ++r) {
      if (!go_on(test, r + 1)) return;
      const double seconds = bench.Measure(test);
      if (Interrupts() > 0) return;  // cut short: no figure
      result.tokens_per_s.push_back(tokens / seconds);
    }
    run.results.push_back(std::move(result));
  }
  for (const auto& shard : engine.stage().ProbeResidency(kShardBudgetS)) run.shard_gbps += shard.reread_gbps;
}

}  // namespace larder::node
