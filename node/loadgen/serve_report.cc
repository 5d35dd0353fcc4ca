#include "node/loadgen/serve_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "node/loadgen/arrivals.h"

namespace larder::node::inline loadgen {
namespace {

using nlohmann::json;

double Milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

double Percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double PerSecond(size_t n, const ServeReport& report) {
  return report.duration_s > 0 ? static_cast<double>(n) / report.duration_s : 0;
}

double Share(size_t part, size_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

const char* KindName(EndpointKind kind) {
  switch (kind) {
    case EndpointKind::kCompletions:
      return "completions";
    case EndpointKind::kChat:
      return "chat";
    case EndpointKind::kText:
      return "text";
  }
  return "unknown";
}

std::string Limits(const Goodput& goodput) {
  std::string out;
  const auto add = [&](const char* name, double limit) {
    if (std::isfinite(limit))
      out += fmt::format("{}{} <= {} ms", out.empty() ? "" : ", ", name, limit);
  };
  add("TTFT", goodput.ttft_ms);
  add("TPOT", goodput.tpot_ms);
  add("E2E", goodput.e2el_ms);
  return out;
}

std::string TurnsText(const ServeReport& report) {
  std::string out = fmt::format("\n{:<8}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "turn", "answers",
                                "tokens", "cached", "TTFT ms", "median", "P99");
  for (size_t i = 0; i < report.turns.size(); ++i) {
    const TurnReport& turn = report.turns[i];
    out += fmt::format("{:<8}{:>10}{:>12}{:>10.1f} %{:>12.3f}{:>12.3f}{:>12.3f}\n", i + 1,
                       turn.ttft.count, turn.prompt_tokens,
                       100 * Share(turn.cached_tokens, turn.prompt_tokens), turn.ttft.mean,
                       turn.ttft.median, turn.ttft.p99);
  }
  return out;
}

}  // namespace

void Goodput::Add(std::string_view limit) {
  const size_t colon = limit.find(':');
  const std::string_view name = limit.substr(0, colon);
  double* const place = name == "ttft"   ? &ttft_ms
                        : name == "tpot" ? &tpot_ms
                        : name == "e2el" ? &e2el_ms
                                         : nullptr;
  const std::string_view number = colon == std::string_view::npos ? "" : limit.substr(colon + 1);
  double value = 0;
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (place == nullptr || failed != std::errc() || end != number.data() + number.size() ||
      !(value > 0)) {
    throw Error(
        "'{}' is not a goodput limit; expected ttft:, tpot: or e2el: and milliseconds, such as "
        "ttft:100",
        limit);
  }
  *place = value;
  any = true;
}

Distribution Summarise(std::vector<double> values) {
  Distribution out{.count = values.size()};
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  for (const double value : values) out.mean += value / static_cast<double>(values.size());
  out.median = Percentile(values, 0.5);
  out.p90 = Percentile(values, 0.9);
  out.p99 = Percentile(values, 0.99);
  return out;
}

ServeReport MakeServeReport(const LoadRun& run, const Goodput& goodput) {
  ServeReport report{.most_in_flight = run.most_in_flight, .duration_s = run.duration_s};
  std::vector<double> ttft, tpot, itl, e2el;
  std::vector<std::vector<double>> ttft_of_turns;
  for (const RequestResult& result : run.results) {
    if (!result.ok) {
      ++report.failed;
      if (report.first_error.empty()) report.first_error = result.error;
      continue;
    }
    ++report.completed;
    report.input_tokens += result.prompt_tokens;
    report.output_tokens += result.output_tokens;
    report.cached_tokens += result.cached_tokens;
    if (result.turn >= report.turns.size()) {
      report.turns.resize(result.turn + 1);
      ttft_of_turns.resize(result.turn + 1);
    }
    TurnReport& turn = report.turns[result.turn];
    turn.prompt_tokens += result.prompt_tokens;
    turn.cached_tokens += result.cached_tokens;
    bool good = true;
    if (result.first_ns != 0) {  // at least one piece of text
      ttft.push_back(Milliseconds(result.first_ns - result.start_ns));
      ttft_of_turns[result.turn].push_back(ttft.back());
      e2el.push_back(Milliseconds(result.last_ns - result.start_ns));
      good = ttft.back() <= goodput.ttft_ms && e2el.back() <= goodput.e2el_ms;
      if (result.output_tokens > 1) {
        tpot.push_back(Milliseconds(result.last_ns - result.first_ns) /
                       static_cast<double>(result.output_tokens - 1));
        good = good && tpot.back() <= goodput.tpot_ms;
      }
    }
    for (const int64_t gap_ns : result.gaps_ns) itl.push_back(Milliseconds(gap_ns));
    report.good += good;
  }
  for (size_t i = 0; i < report.turns.size(); ++i)
    report.turns[i].ttft = Summarise(std::move(ttft_of_turns[i]));
  report.ttft = Summarise(std::move(ttft));
  report.tpot = Summarise(std::move(tpot));
  report.itl = Summarise(std::move(itl));
  report.e2el = Summarise(std::move(e2el));
  return report;
}

std::string FiguresText(const Goodput& goodput, const ServeReport& report) {
  std::string out =
      fmt::format("requests     {} completed, {} failed in {:.2f} s; at most {} in flight\n",
                  report.completed, report.failed, report.duration_s, report.most_in_flight);
  if (report.failed > 0) out += fmt::format("first error  {}\n", report.first_error);
  out += fmt::format("tokens       {} of prompts, {} generated\n", report.input_tokens,
                     report.output_tokens);
  if (report.cached_tokens > 0) {
    out +=
        fmt::format("cache        held {} of the prompts' tokens ({:.1f} %)\n",
                    report.cached_tokens, 100 * Share(report.cached_tokens, report.input_tokens));
  }
  out += fmt::format(
      "throughput   {:.2f} requests/s, {:.1f} generated tokens/s, {:.1f} tokens/s in all\n",
      PerSecond(report.completed, report), PerSecond(report.output_tokens, report),
      PerSecond(report.input_tokens + report.output_tokens, report));
  if (goodput.any) {
    out +=
        fmt::format("goodput      {:.2f} requests/s ({} of {}) with {}\n",
                    PerSecond(report.good, report), report.good, report.completed, Limits(goodput));
  }
  out += fmt::format("\n{:<8}{:>10}{:>12}{:>12}{:>12}{:>12}\n", "ms", "count", "mean", "median",
                     "P90", "P99");
  const auto row = [&](const char* name, const Distribution& d) {
    out += fmt::format("{:<8}{:>10}{:>12.3f}{:>12.3f}{:>12.3f}{:>12.3f}\n", name, d.count, d.mean,
                       d.median, d.p90, d.p99);
  };
  row("TTFT", report.ttft);
  row("TPOT", report.tpot);
  row("ITL", report.itl);
  row("E2E", report.e2el);
  if (report.turns.size() > 1) out += TurnsText(report);
  return out;
}

std::string ServeText(const LoadSpec& spec, const Goodput& goodput, const ServeReport& report) {
  return fmt::format("endpoint     {}:{} {}, {}\n{}", spec.target.host, spec.target.port,
                     KindName(spec.target.kind),
                     ArrivalsText(spec.requests_per_s, spec.max_concurrency),
                     FiguresText(goodput, report));
}

json LoadJson(size_t requests, double requests_per_s, size_t max_concurrency) {
  return {{"num_prompts", requests},
          {"request_rate", std::isfinite(requests_per_s) ? json(requests_per_s) : json("inf")},
          {"max_concurrency", max_concurrency > 0 ? json(max_concurrency) : json(nullptr)}};
}

json FiguresJson(const Goodput& goodput, const ServeReport& report) {
  json out = {
      {"max_in_flight", report.most_in_flight},
      {"duration", report.duration_s},
      {"completed", report.completed},
      {"failed", report.failed},
      {"total_input_tokens", report.input_tokens},
      {"total_output_tokens", report.output_tokens},
      {"total_cached_tokens", report.cached_tokens},
      {"request_throughput", PerSecond(report.completed, report)},
      {"request_goodput", goodput.any ? json(PerSecond(report.good, report)) : json(nullptr)},
      {"output_throughput", PerSecond(report.output_tokens, report)},
      {"total_token_throughput", PerSecond(report.input_tokens + report.output_tokens, report)},
      {"first_error", report.first_error.empty() ? json(nullptr) : json(report.first_error)}};
  const auto add = [&](const std::string& name, const Distribution& d) {
    out["mean_" + name + "_ms"] = d.mean;
    out["median_" + name + "_ms"] = d.median;
    out["p90_" + name + "_ms"] = d.p90;
    out["p99_" + name + "_ms"] = d.p99;
  };
  add("ttft", report.ttft);
  add("tpot", report.tpot);
  add("itl", report.itl);
  add("e2el", report.e2el);
  for (size_t i = 0; report.turns.size() > 1 && i < report.turns.size(); ++i) {
    const TurnReport& turn = report.turns[i];
    out["turns"].push_back({{"turn", i + 1},
                            {"completed", turn.ttft.count},
                            {"input_tokens", turn.prompt_tokens},
                            {"cached_tokens", turn.cached_tokens},
                            {"mean_ttft_ms", turn.ttft.mean},
                            {"median_ttft_ms", turn.ttft.median},
                            {"p99_ttft_ms", turn.ttft.p99}});
  }
  return out;
}

std::string ServeJson(const LoadSpec& spec, const Goodput& goodput, const ServeReport& report) {
  json out = {{"endpoint", KindName(spec.target.kind)},
              {"host", spec.target.host},
              {"port", spec.target.port},
              {"model_id", spec.target.model}};
  out.update(LoadJson(spec.requests.size(), spec.requests_per_s, spec.max_concurrency));
  out.update(FiguresJson(goodput, report));
  return out.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace larder::node::loadgen
