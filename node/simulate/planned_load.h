// Planned requests over the real scheduler and an engine, real or simulated: each begins when it
// comes and ends with its last token, whatever the logits say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "node/loadgen/serve_load.h"
#include "node/simulate/workload.h"
#include "pipeline/engine/token_engine.h"
#include "pipeline/scheduler/scheduler.h"

namespace larder::node::inline simulate {

struct PlannedLoad {
  std::vector<PlannedRequest> requests;  // in the order of time
  size_t max_concurrency = 0;            // 0: no limit
  pipeline::PolicyOptions policy;
  size_t active_tokens = 0;  // as SchedulerOptions
  // Gets a line for each micro-batch, in their order: for each sequence that has rows in it
  // "request:first+rows", the request's number, the first row's position, and how many rows. Null:
  // nobody. Equal scheduling gives equal files.
  std::FILE* trace = nullptr;
};

// What the scheduler counted.
struct ScheduledSteps {
  uint64_t steps = 0, prompt_rows = 0, answer_rows = 0;
  uint64_t sequences = 0;  // with rows in a step, summed over all steps
  uint64_t transitions = 0, preempted = 0, yielded = 0;
  uint64_t repeated_rows = 0;  // of sequences that had lost their slots
};

struct PlannedRun {
  loadgen::LoadRun load;
  ScheduledSteps scheduled;
};

// Runs until every request has ended. wait_until: returns when the clock shows that time, when
// there is nothing to do; a simulation has it so at once.
PlannedRun RunPlanned(pipeline::TokenEngine& engine, Clock& clock,
                      const std::function<void(uint64_t at_ns)>& wait_until,
                      const PlannedLoad& load);

}  // namespace larder::node::simulate
