#include "node/tasks/bench_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>

#include "base/clock.h"
#include "node/service/signals.h"

namespace larder::node::inline tasks {
namespace {

constexpr double kShardBudgetS = 0.3;

class Bench {
 public:
  explicit Bench(pipeline::Engine& engine) : engine_(engine), vocab_(engine.plan().config.vocab) {}

  // Fills each slot of the test with a KV cache of `depth` tokens.
  void FillDepth(const BenchTest& test) {
    for (SlotId slot(0); slot.index() < test.batch; ++slot) {
      engine_.Reset(slot);
      if (test.depth > 0) Prefill(slot, 0, test.depth, false);
    }
  }

  // Returns the seconds of one repetition. Each repetition rewrites the positions after `depth`.
  double Measure(const BenchTest& test) {
    if (!test.decode) {
      const int64_t start = NowNs();
      Prefill(SlotId(0), test.depth, test.tokens, true);
      return SecondsSince(start);
    }
    const int64_t start = NowNs();
    Decode(test);
    return SecondsSince(start);
  }

 private:
  int32_t RandomToken() { return static_cast<int32_t>(random_() % vocab_); }

  void Prefill(SlotId slot, size_t position, size_t count, bool logits) {
    rows_.clear();
    for (size_t i = 0; i < count; ++i) {
      rows_.push_back({RandomToken(), slot, static_cast<uint32_t>(position + i), logits && i + 1 == count});
    }
    // Split as Run would split it, so that Ctrl-C is noticed between micro-batches.
    const size_t piece = engine_.max_rows() * engine_.max_in_flight();
    for (size_t begin = 0; begin < count && Interrupts() == 0; begin += piece)
      engine_.Run(std::span(rows_).subspan(begin, std::min(piece, count - begin)));
  }

  // Decodes every sequence's tokens, step by step. A batch is split where a micro-batch has too few rows for
  // it, or where a chain of stages has room for several micro-batches: each piece's next step follows when
  // its previous one is done.
  void Decode(const BenchTest& test) {
    const size_t limit = engine_.max_in_flight();
    const size_t pieces = std::max(std::min(limit, test.batch), CeilDiv(test.batch, engine_.max_logits()));
    const size_t all = test.tokens * pieces;
    for (size_t submitted = 0, collected = 0; collected < all && Interrupts() == 0; ++collected) {
      for (; submitted < all && submitted - collected < std::min(pieces, limit); ++submitted) {
        const size_t piece = submitted % pieces;
        rows_.clear();
        const size_t end = test.batch * (piece + 1) / pieces;
        for (SlotId slot(static_cast<int32_t>(test.batch * piece / pieces)); slot.index() < end; ++slot) {
          rows_.push_back(
              {RandomToken(), slot, static_cast<uint32_t>(test.depth + submitted / pieces), true});
        }
        engine_.Submit(rows_);
      }
      engine_.Collect();
    }
    while (engine_.in_flight() > 0) engine_.Collect();  // after Ctrl-C
  }

  pipeline::Engine& engine_;
  size_t vocab_;
  std::mt19937 random_{1};
  std::vector<pipeline::TokenRow> rows_;
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

}  // namespace larder::node::tasks
