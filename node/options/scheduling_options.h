// How the scheduler shares steps among prompts and answers: options of the commands that run one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "pipeline/scheduler/policy.h"

namespace CLI {
class App;
}

namespace larder::node::inline options {

struct SchedulingOptions {
  std::string policy = pipeline::PolicyName(pipeline::Policy::kAuto);
  size_t active_kv_tokens = 0;  // 0: not bounded
  std::optional<double> max_stall_ms;
  size_t prefill_budget = 0;  // 0: what max_stall_ms allows

  pipeline::PolicyOptions ToPolicy() const;
};

// --policy and --active-kv-tokens.
void AddPolicyOptions(CLI::App& command, SchedulingOptions& options, const char* group);
// --max-stall-ms and --prefill-budget, for commands where clients wait for their first tokens.
void AddStallOptions(CLI::App& command, SchedulingOptions& options, const char* group);

}  // namespace larder::node::options
