#include "pipeline/prediction/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "pipeline/manifest/text.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline prediction {
namespace {

// GB/s are bytes per nanosecond.
double Us(double bytes, double gbps) { return gbps > 0 ? bytes / gbps * 1e-3 : 0; }

constexpr double kLineBytes = 64, kLinesInFlight = 10;  // of one core that reads far lines

double LinesUs(double bytes, double hop_us) { return bytes / kLineBytes / kLinesInFlight * hop_us; }

}  // namespace

double Prediction::ReadBytes(const PredictedStage& stage, size_t batch) {
  const auto bytes = static_cast<double>(stage.weight_bytes);
  if (stage.experts.count == 0) return bytes;
  const double idle = 1.0 - weight_node::ActiveExperts(stage.experts, batch) /
                                static_cast<double>(stage.experts.count);
  return bytes - static_cast<double>(stage.expert_bytes) * idle;
}

double Prediction::MemoryGbps(size_t cores, size_t packages) const {
  const double core_gbps = std::min(speeds.dram_core_gbps, speeds.l3_core_gbps);
  return std::min(speeds.dram_socket_gbps * static_cast<double>(packages),
                  core_gbps * static_cast<double>(cores));
}

double Prediction::ProductGops(double rows) const {
  const double step = std::log2(std::max(1.0, rows));
  const size_t i = std::min(static_cast<size_t>(step), speeds.rows_gops.size() - 1);
  const size_t next = std::min(i + 1, speeds.rows_gops.size() - 1);
  const auto gops = [&](size_t at) {
    return speeds.rows_gops[at] > 0 ? speeds.rows_gops[at] : speeds.core_gops;
  };
  const double share = std::min(1.0, step - static_cast<double>(i));
  return gops(i) + (gops(next) - gops(i)) * share;
}

double Prediction::ElementsOf(const PredictedStage& stage, size_t batch) {
  const auto cores = static_cast<double>(std::max<size_t>(1, stage.cores));
  return static_cast<double>(batch) *
         (static_cast<double>(stage.normed_elements) / (batch <= stage.few_rows ? 1 : cores) +
          static_cast<double>(stage.made_elements) / cores);
}

double Prediction::AttentionUs(const PredictedStage& stage, size_t batch, bool kv_in_l3) const {
  const auto cores = static_cast<double>(std::max<size_t>(1, stage.kv_cores));
  const auto rows = static_cast<double>(batch);
  const double parts = rows * stage.attention_heads * stage.attention_chunks;
  // How many times its share the busiest thread has.
  const double fullest = parts > 0 ? std::ceil(parts / cores) * cores / parts : 1;
  const double bytes = rows * static_cast<double>(stage.kv_bytes);
  const double read = kv_in_l3 ? Us(bytes * fullest, speeds.l3_core_gbps * cores)
                               : Us(bytes, MemoryGbps(stage.kv_cores, stage.packages.kv));
  const double arithmetic_ns = stage.head_elements * speeds.attention_element_ns +
                               stage.head_positions * speeds.attention_position_ns;
  const double appended_ns = static_cast<double>(stage.appended_elements) * speeds.append_ns;
  return std::max(read, rows * arithmetic_ns * fullest / cores * 1e-3) +
         rows * appended_ns / cores * 1e-3;
}

// Each thread reads the whole row, of which the other packages have written their share; a barrier
// goes to the root's package and back. Between weights and KV queries and what they attend to cross
// once each.
double Prediction::PackagesUs(const PredictedStage& stage, size_t batch) const {
  const auto lines_us = [&](double bytes) {
    return LinesUs(static_cast<double>(batch) * bytes, speeds.package_hop_us);
  };
  double us = 0;
  if (stage.packages.weights > 1) {
    const double far = 1 - 1 / static_cast<double>(stage.packages.weights);
    us += 8 * speeds.package_hop_us + lines_us(far * static_cast<double>(stage.input_bytes));
  }
  if (stage.packages.apart)
    us += 2 * speeds.package_hop_us + lines_us(static_cast<double>(stage.attended_bytes));
  return stage.layers != 0 ? us : 0;
}

// weights: reading them once for all rows, or the arithmetic for each row, whichever takes longer.
// attention: each sequence reads its own KV cache.
PredictedTimes Prediction::Times(const PredictedStage& stage, size_t batch) const {
  PredictedTimes times;
  const auto rows = static_cast<double>(batch);
  const double l3_gbps = speeds.l3_core_gbps * static_cast<double>(stage.cores);
  const double read =
      Us(ReadBytes(stage, batch),
         stage.weights_in_l3 ? l3_gbps : MemoryGbps(stage.cores, stage.packages.weights));
  // Of experts each has its share of the rows.
  const double product_rows = stage.experts.count == 0
                                  ? rows
                                  : rows * static_cast<double>(stage.experts.used) /
                                        weight_node::ActiveExperts(stage.experts, batch);
  const double compute = Us(2 * rows * static_cast<double>(stage.weight_parameters),
                            ProductGops(product_rows) * static_cast<double>(stage.cores));
  times.weights_us = std::max(read, compute) / std::max(stage.balance, 1e-3);
  times.compute_bound = compute > read;
  // All sequences in flight keep their KV of this stage's layers (Cache-Resident LLM Inference,
  // section 2.3).
  const double kv_all =
      rows * static_cast<double>(stage.kv_bytes * stage.layers * capacity.max_in_flight);
  times.kv_in_l3 = kv_all <= static_cast<double>(stage.kv_room_bytes);
  times.attention_us = AttentionUs(stage, batch, times.kv_in_l3);
  times.sync_us = stage.layers != 0 ? speeds.layer_sync_us : 0;
  // Each thread reads whole rows, of which the others have made their shares.
  const double others = 1 - 1 / static_cast<double>(std::max<size_t>(1, stage.cores));
  times.gathers_us =
      LinesUs(rows * others * static_cast<double>(stage.input_bytes), speeds.core_hop_us);
  times.packages_us = PackagesUs(stage, batch);
  times.rows_us = ElementsOf(stage, batch) * speeds.element_ns * 1e-3;
  times.exchange_us = ExchangeUs(stage, batch);
  times.stage_us = static_cast<double>(std::max<size_t>(1, stage.layers)) *
                   (times.weights_us + times.attention_us + times.rows_us + times.sync_us +
                    times.gathers_us + times.packages_us + times.exchange_us);
  return times;
}

double Prediction::LinkUs(size_t batch) const {
  return links == 0 ? 0
                    : speeds.link_latency_us +
                          Us(static_cast<double>(batch * row_bytes), speeds.link_gbps);
}

PredictedStage Prediction::WithContext(PredictedStage stage, double share) {
  stage.kv_bytes = static_cast<uint64_t>(std::llround(static_cast<double>(stage.kv_bytes) * share));
  stage.head_positions *= share;
  stage.head_elements *= share;
  stage.attention_chunks = std::ceil(stage.attention_chunks * share);
  return stage;
}

// As if nothing were computed while rows are on their way. Several servers have links of their own,
// but one link of the weight socket's server; so all rows share it.
double Prediction::ExchangeUs(const PredictedStage& stage, size_t batch) const {
  if (!stage.attention_elsewhere) return 0;
  const uint64_t row = stage.sent_bytes + stage.returned_bytes;
  return 2 * speeds.link_latency_us + Us(static_cast<double>(batch * row), speeds.link_gbps);
}

PredictedStage Prediction::WithAttentionHere(PredictedStage stage) {
  stage.attention_elsewhere = false;
  stage.kv_cores = stage.cores;
  stage.packages.kv = stage.packages.weights;
  stage.kv_room_bytes = stage.kv_room_here_bytes;
  return stage;
}

PredictedExchange Prediction::Exchange(const PredictedStage& stage) const {
  const PredictedStage here = WithAttentionHere(stage);
  const auto first = std::ranges::find_if(points, [&](const PredictedPoint& point) {
    return Times(stage, point.batch).stage_us < Times(here, point.batch).stage_us;
  });
  const size_t batch = first != points.end() ? first->batch : points.back().batch;
  const PredictedTimes there = Times(stage, batch);
  return {.pays = first != points.end(),
          .batch = batch,
          .exchange_us = there.exchange_us,
          .attention_us = there.attention_us,
          .attention_here_us = Times(here, batch).attention_us};
}

std::string Prediction::ExchangeText(const PredictedStage& stage) const {
  const PredictedExchange exchange = Exchange(stage);
  return fmt::format(
      "  exchange = {:.1f} KB there + {:.1f} KB back of a row and layer, two links of {:g} us; "
      "batch {}: {:.1f} + attention {:.1f} us, {:.1f} us on the weight socket:\n"
      "             {}\n",
      static_cast<double>(stage.sent_bytes) * 1e-3,
      static_cast<double>(stage.returned_bytes) * 1e-3, speeds.link_latency_us, exchange.batch,
      exchange.exchange_us, exchange.attention_us, exchange.attention_here_us,
      exchange.pays
          ? fmt::format("attention on other servers pays from batch {}", exchange.batch)
          : "attention on other servers does not pay here but for their memory; colocated would be "
            "faster");
}

PredictedPoint Prediction::Point(size_t batch) const {
  double path_us = speeds.step_us + static_cast<double>(links) * LinkUs(batch), slowest_us = 0;
  for (const PredictedStage& stage : stages) {
    const double us = Times(stage, batch).stage_us;
    path_us += us;
    slowest_us = std::max(slowest_us, us);
  }
  if (serves_beside)
    slowest_us = std::max(
        slowest_us, Times(stages.front(), batch).stage_us + Times(stages.back(), batch).stage_us);
  const auto in_flight = static_cast<double>(capacity.max_in_flight);
  PredictedPoint point;
  point.batch = batch;
  point.alone_ms = path_us * 1e-3;
  point.tpot_ms = std::max(path_us, in_flight * slowest_us) * 1e-3;
  point.tokens_per_s = in_flight * static_cast<double>(batch) / point.tpot_ms * 1e3;
  return point;
}

PredictedPoint Prediction::BandedPoint(size_t batch) const {
  PredictedPoint point = Point(batch);
  Prediction bound = *this;
  bound.speeds = speeds.Bound(/*best=*/true);
  point.best_ms = bound.Point(batch).tpot_ms;
  bound.speeds = speeds.Bound(/*best=*/false);
  point.worst_ms = bound.Point(batch).tpot_ms;
  return point;
}

Prediction Prediction::WithOneMoreSocket() const {
  Prediction more = *this;
  const auto us_of = [&](const PredictedStage& stage) {
    return stage.layers > 1 ? Times(stage, 1).stage_us : 0;
  };
  const auto slowest = std::ranges::max_element(more.stages, {}, us_of);
  if (slowest == more.stages.end() || slowest->layers < 2) return more;
  more.stages.insert(slowest + 1, PredictedStage(*slowest));
  size_t layers = 0, first = 0;
  for (const PredictedStage& stage : stages) layers += stage.layers;
  const size_t sockets = more.stages.size() - 1;
  for (size_t i = 0; i < sockets; ++i) {
    PredictedStage& stage = more.stages[i];
    const size_t end = layers * (i + 1) / sockets;
    stage.layers = end - std::exchange(first, end);
    stage.weights_in_l3 =
        stage.weights_in_l3 || stage.weight_bytes * stage.layers <= stage.l3_budget_bytes;
  }
  more.links = more.stages.size();  // of them one serves
  more.capacity.max_in_flight = std::max(more.capacity.max_in_flight, more.stages.size() - 1);
  return more;
}

std::string Prediction::Why() const {
  if (stages.empty()) return "";
  struct Part {
    const char* name;
    double us;
  };
  const PredictedStage& slowest = *std::ranges::max_element(
      stages, {}, [&](const PredictedStage& stage) { return Times(stage, 1).stage_us; });
  const PredictedTimes t = Times(slowest, 1);
  std::vector<Part> parts = {{t.compute_bound ? "multiplying" : "reading weights", t.weights_us},
                             {"attention", t.attention_us},
                             {"norms and quantisation", t.rows_us},
                             {"barriers", t.sync_us},
                             {"lines of other cores", t.gathers_us},
                             {"packages", t.packages_us},
                             {"links to attention", t.exchange_us}};
  std::ranges::stable_sort(parts, std::greater(), &Part::us);
  const double layer_us = t.stage_us / static_cast<double>(std::max<size_t>(1, slowest.layers));
  const auto text_of = [&](const Part& part) {
    return fmt::format("{} {:.0f} %", part.name, 100 * part.us / layer_us);
  };
  std::string then;
  for (const Part& part : std::span(parts).subspan(1)) {
    if (part.us >= 0.01 * layer_us)
      then += fmt::format("{}{}", then.empty() ? "" : ", ", text_of(part));
  }
  const bool reads = parts.front().us == t.weights_us && !t.compute_bound;
  std::string out = fmt::format("  binds      {}{} of {}'s time, one sequence\n",
                                reads ? slowest.weights_in_l3 ? "L3: " : "memory: " : "",
                                text_of(parts.front()), slowest.name);
  if (!then.empty()) out += fmt::format("  then       {}\n", then);
  // Each speed alone twice as good.
  const double now_ms = Point(1).tpot_ms;
  std::vector<std::pair<double, const SpeedInput*>> gains;
  for (const SpeedInput& input : SpeedInputs()) {
    Prediction faster = *this;
    faster.speeds.Improve(input, 2);
    gains.emplace_back(faster.Point(1).tpot_ms, &input);
  }
  std::ranges::stable_sort(gains, {}, [](const auto& gain) { return gain.first; });
  std::string twice;
  for (const auto& [ms, input] : std::span(gains).first(3)) {
    if (ms < 0.99 * now_ms)
      twice += fmt::format("{}{} {:.3f} ms", twice.empty() ? "" : ", ", input->option + 2, ms);
  }
  if (!twice.empty()) out += fmt::format("  twice      as good would give: {}\n", twice);
  const auto bound = std::ranges::find_if(points, [&](const PredictedPoint& point) {
    return slowest.layers > 0 && Times(slowest, point.batch).compute_bound;
  });
  if (bound != points.end())
    out += fmt::format("  batch      from {} sequences on arithmetic decides\n", bound->batch);
  const Prediction more = WithOneMoreSocket();
  if (more.stages.size() > stages.size()) {
    const size_t most = points.empty() ? 1 : points.back().batch;
    out += fmt::format(
        "  one more   such socket, as a stage: {:.3f} ms alone for {:.3f}, {:.0f} tokens/s for "
        "{:.0f} with batch {}\n",
        more.Point(1).alone_ms, Point(1).alone_ms, more.Point(most).tokens_per_s,
        Point(most).tokens_per_s, most);
  }
  return out;
}

std::string Prediction::Text() const {
  std::string out = fmt::format("prediction context {}, from ({})\n{}", capacity.context,
                                speeds.Origin(), speeds.Text());
  const size_t batch = 1;
  // Equal stages share one line.
  struct Line {
    const PredictedStage* stage;
    size_t count;
  };
  std::vector<Line> lines;
  for (const PredictedStage& stage : stages) {
    const bool same = !lines.empty() && lines.back().stage->layers == stage.layers &&
                      lines.back().stage->cores == stage.cores &&
                      lines.back().stage->weight_bytes == stage.weight_bytes &&
                      lines.back().stage->weights_in_l3 == stage.weights_in_l3 &&
                      lines.back().stage->kv_cores == stage.kv_cores &&
                      lines.back().stage->packages == stage.packages &&
                      lines.back().stage->attention_elsewhere == stage.attention_elsewhere &&
                      lines.back().stage->balance == stage.balance &&
                      lines.back().stage->kv_room_bytes == stage.kv_room_bytes;
    if (same) {
      ++lines.back().count;
    } else {
      lines.push_back({&stage, 1});
    }
  }
  std::string sum;
  for (const auto& [stage, count] : lines) {
    const PredictedTimes t = Times(*stage, batch);
    const double gbps = stage->weights_in_l3
                            ? speeds.l3_core_gbps * static_cast<double>(stage->cores)
                            : MemoryGbps(stage->cores, stage->packages.weights);
    const std::string weights =
        fmt::format("{:.2f} MB / {:.4g} GB/s {}", ReadBytes(*stage, batch) * 1e-6, gbps,
                    stage->weights_in_l3 ? "L3" : "memory");
    if (stage->layers == 0) {
      out += fmt::format("  serving  = head {} = {:.1f} us{}\n", weights, t.stage_us,
                         serves_beside ? ", on the cores of the first stage" : "");
    } else {
      const bool crosses = t.packages_us > 0, norms = t.rows_us > 0, gathers = t.gathers_us > 0;
      out += fmt::format(
          "  stage    = {} layers x (weights {} + attention of {:.2f} MB in {}{}{} + "
          "barriers{}{})\n"
          "           = {} x ({:.1f} + {:.1f}{}{} + {:.1f}{}{} us) = {:.1f} us{}\n",
          stage->layers, weights, Mb(stage->kv_bytes), t.kv_in_l3 ? "L3" : "memory",
          norms ? " + rows" : "", gathers ? " + lines" : "", crosses ? " + packages" : "",
          stage->attention_elsewhere ? " + exchange" : "", stage->layers, t.weights_us,
          t.attention_us, norms ? fmt::format(" + {:.1f}", t.rows_us) : "",
          gathers ? fmt::format(" + {:.1f}", t.gathers_us) : "", t.sync_us,
          crosses ? fmt::format(" + {:.1f}", t.packages_us) : "",
          stage->attention_elsewhere ? fmt::format(" + {:.1f}", t.exchange_us) : "", t.stage_us,
          count > 1 ? fmt::format(", {} such stages", count) : "");
      if (stage->attention_elsewhere) out += ExchangeText(*stage);
    }
    sum += fmt::format("{}{}{:.1f}", sum.empty() ? "" : " + ",
                       count > 1 ? fmt::format("{} x ", count) : "", t.stage_us);
  }
  const PredictedPoint one = Point(batch);
  if (links != 0) {
    out += fmt::format("  link     = {:g} us + {:.1f} KB / {:g} GB/s = {:.1f} us, {} a token\n",
                       speeds.link_latency_us, static_cast<double>(row_bytes) * 1e-3,
                       speeds.link_gbps, LinkUs(batch), links);
    sum += fmt::format(" + {} x {:.1f}", links, LinkUs(batch));
  }
  out += fmt::format(
      "  TPOT     = {} + {:g} us around a step = {:.3f} ms with one micro-batch of one sequence in "
      "flight\n",
      sum, speeds.step_us, one.alone_ms);
  if (capacity.max_in_flight > 1) {
    out += fmt::format("           = max(that, {} x slowest) = {:.3f} ms with {} in flight\n",
                       capacity.max_in_flight, one.tpot_ms, capacity.max_in_flight);
  }
  out += Why();
  const bool banded = speeds.AnyOf(SpeedSource::kAssumed);
  if (banded) out += "  The bands are what is assumed at its best and at its worst.\n";
  // One in flight has no other time than with all.
  const bool several = capacity.max_in_flight > 1;
  out += fmt::format("\n  batch{}       TPOT ms{}   tokens/s\n", several ? "   alone ms" : "",
                     banded ? "         its band" : "");
  for (const PredictedPoint& point : points) {
    out += fmt::format("  {:>5}", point.batch);
    if (several) out += fmt::format(" {:>10.3f}", point.alone_ms);
    out += fmt::format(" {:>13.3f}", point.tpot_ms);
    if (banded)
      out += fmt::format(" {:>16}", fmt::format("{:.3f}..{:.3f}", point.best_ms, point.worst_ms));
    out += fmt::format(" {:>10.0f}\n", point.tokens_per_s);
  }
  return out;
}

}  // namespace larder::pipeline::prediction
