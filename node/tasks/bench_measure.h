// The measurements of `larder bench`: prefill (pp) and decode (tg) as llama-bench defines them,
// that is with random token ids, no sampling, and a warm-up run that is not counted. The scheduler
// of `run` and `serve` drives the engine here too, so its time is in each figure. The machine's
// read bandwidths are measured in the same run on the same CPUs, as the limits to compare with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/engine/engine.h"
#include "topology/probe.h"

namespace larder::node::inline tasks {

struct BenchTest {
  bool decode = false;
  size_t tokens = 0;         // pp: tokens of the prompt; tg: tokens per sequence
  size_t batch = 1;          // tg: sequences decoded together, each in its own slot
  size_t depth = 0;          // tokens in each slot's KV cache at the start
  std::string name() const;  // "pp512", "tg128", "tg128 b8 @ d512"
  // The context that a slot needs.
  size_t context() const { return depth + tokens; }
};

struct BenchResult {
  BenchTest test;
  std::vector<double> seconds;       // per repetition
  std::vector<double> tokens_per_s;  // per repetition, over all sequences
  double bytes_per_step = 0;         // tg: weights and KV cache read, mean over the steps
  double operations_per_token = 0;   // multiplications and additions of the weight matrices
  // Of the weights of all sockets, while the last repetition ran; nullopt: not measured.
  std::optional<double> resident_share;
  double median() const;
  double gbps() const;  // tg: bytes_per_step * steps/s
  double gops() const;
};

double Mean(const std::vector<double>& values);       // 0 without values
double Deviation(const std::vector<double>& values);  // sample standard deviation; 0 for one value

struct BenchRun {
  size_t threads = 0;
  size_t max_batch_tokens = 0;
  topology::MachineBandwidth machine;
  double shard_gbps = 0;  // all threads read their shards at once
  std::vector<BenchResult> results;
};

struct BenchSpec {
  std::vector<BenchTest> tests;
  size_t repetitions = 5;
  double probe_budget_s = 1.0;
};

// If `go_on` returns false, the bench ends after the current repetition. `engine` must have the
// slots and the context that the tests need. Fills run.results and run.shard_gbps.
void MeasureBench(pipeline::Engine& engine, const BenchSpec& spec, BenchRun& run,
                  const std::function<bool(const BenchTest&, size_t repetition)>& go_on);

// Where the time of a step goes, measured with a timeline (which costs some 20 ns per part and unit
// of work). For each part of each step the fastest repetition counts, so that a moment in which
// other work has the machine does not show in some part; the figures are means over the steps.
struct Breakdown {
  struct Part {
    std::string name;
    double us = 0;        // per step, mean over the threads
    double limit_us = 0;  // products: the least that multiplying, or reading the weights once,
                          // takes; else 0
  };
  BenchTest test;
  size_t steps = 0;    // steps of a repetition: decode steps, or micro-batches of the prompt
  double step_us = 0;  // from the first thread's begin to the last one's end; at least the sum of
                       // the parts
  double peak_gops = 0, reread_gbps = 0;  // the rates behind limit_us: all threads at once, in the
                                          // same run
  std::vector<Part> parts;  // in the order of a token's way; the last one is waiting: the rest of a
                            // step
  double sum_us() const;    // the sum of the parts
  double products_us() const, products_limit_us() const;
};

// Throws Error unless the engine's only stage is in this process and attends itself.
std::vector<Breakdown> MeasureBreakdown(
    pipeline::Engine& engine, const BenchSpec& spec,
    const std::function<bool(const BenchTest&, size_t repetition)>& go_on);

// What the routers of a model with experts chose in a test: its repetitions together.
struct BenchRouting {
  BenchTest test;
  std::vector<ExpertCounts> layers;
};

// Throws Error unless the model has experts.
std::vector<BenchRouting> MeasureRouting(
    pipeline::Engine& engine, const BenchSpec& spec,
    const std::function<bool(const BenchTest&, size_t repetition)>& go_on);

}  // namespace larder::node::tasks
