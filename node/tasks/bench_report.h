// The output of `larder bench`: markdown tables, llama-bench's first, or JSON.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "node/tasks/bench_measure.h"

namespace larder::node::inline tasks {

struct BenchModel {
  std::string path;
  model::ModelConfig config;
  uint64_t tensor_bytes = 0;
  std::string isa;
  std::string cpu;  // from topology::CpuName()
};

// Two tables, at most 110 columns wide: speeds, and decode against the machine's limits of the same
// run.
std::string BenchMarkdown(const BenchModel& model, const std::vector<BenchRun>& runs);
// An array with an object per test; n_prompt, n_gen, n_threads, avg_*, stddev_*, samples_* and the
// model_ fields are llama-bench's, the others are Larder's.
std::string BenchJson(const BenchModel& model, const std::vector<BenchRun>& runs);

// A row per part of a step, a column per test: microseconds per step and their share. One table per
// number of threads.
std::string BreakdownMarkdown(const BenchModel& model, size_t threads,
                              const std::vector<Breakdown>& tests);
// An array with an object per number of threads and test.
std::string BreakdownJson(const BenchModel& model,
                          const std::vector<std::pair<size_t, std::vector<Breakdown>>>& runs);

// A table for each test, a row for each layer with experts: how many are read in a step, how
// unequally they are chosen, how often a sequence's next token chooses them again, and which share
// of the choices the most chosen quarter and half of them have.
std::string RoutingMarkdown(const BenchModel& model, const std::vector<BenchRouting>& tests);
// An array with an object per test.
std::string RoutingJson(const BenchModel& model, const std::vector<BenchRouting>& tests);

}  // namespace larder::node::tasks
