// `larder simulate`: planned requests over a Plan's simulated engine, or over a real one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "node/loading/plan_inputs.h"
#include "node/options/scheduling_options.h"
#include "node/simulate/workload.h"

namespace CLI {
class App;
}

namespace larder::node::inline simulate {

struct SimulateOptions {
  PlanInputOptions inputs;
  SchedulingOptions scheduling;
  WorkloadSpec workload;
  std::string replay;          // file of requests instead of the workload; empty: none
  size_t max_concurrency = 0;  // 0: no limit
  std::vector<std::string> goodput;
  std::string trace;  // file for the micro-batches; empty: none
  bool json = false;
  bool real = false;  // on this machine's engine
};

void DescribeSimulate(CLI::App& command, SimulateOptions& options);
// Returns the exit code.
int Simulate(const SimulateOptions& options);

}  // namespace larder::node::simulate
