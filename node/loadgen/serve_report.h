// The report of `larder bench-serve`, in the terms and JSON keys of vLLM's `bench serve`.
#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "node/loadgen/serve_load.h"

namespace larder::node::inline loadgen {

// The limits of a good request, in milliseconds.
struct Goodput {
  double ttft_ms = std::numeric_limits<double>::infinity();
  double tpot_ms = std::numeric_limits<double>::infinity();
  double e2el_ms = std::numeric_limits<double>::infinity();
  bool any = false;
  // Parses a limit such as "ttft:100". Throws Error.
  void Add(std::string_view limit);
};

struct Distribution {
  size_t count = 0;
  double mean = 0, median = 0, p90 = 0, p99 = 0;
};
// Percentiles are interpolated. All zeros if there are no values.
Distribution Summarise(std::vector<double> values);

// The requests that were the same turn of their conversations.
struct TurnReport {
  size_t prompt_tokens = 0, cached_tokens = 0;
  Distribution ttft;  // milliseconds, over completed requests
};

struct ServeReport {
  size_t completed = 0, failed = 0, good = 0;
  size_t input_tokens = 0, output_tokens = 0;
  size_t cached_tokens = 0;  // the part of the input tokens that the server had in its cache
  size_t most_in_flight = 0;
  double duration_s = 0;
  // Milliseconds, over completed requests. TPOT is the time after the first token per further
  // token, over requests with two or more.
  Distribution ttft, tpot, itl, e2el;
  std::vector<TurnReport> turns;  // by turn; one: there were no conversations
  std::string first_error;
};
ServeReport MakeServeReport(const LoadRun&, const Goodput&);

// What is not of the server: throughput and latencies, for people, and in vLLM's keys.
std::string FiguresText(const Goodput&, const ServeReport&);
nlohmann::json FiguresJson(const Goodput&, const ServeReport&);
// How many requests came, and how; max_concurrency 0: any number at a time.
nlohmann::json LoadJson(size_t requests, double requests_per_s, size_t max_concurrency);

std::string ServeText(const LoadSpec&, const Goodput&, const ServeReport&);
std::string ServeJson(const LoadSpec&, const Goodput&, const ServeReport&);

}  // namespace larder::node::loadgen
