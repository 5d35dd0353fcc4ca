#include "node/options/scheduling_options.h"

#include <CLI/CLI.hpp>

#include "node/options/count_option.h"

namespace larder::node::inline options {

pipeline::PolicyOptions SchedulingOptions::ToPolicy() const {
  return {.policy = *pipeline::PolicyByName(policy),
          .max_stall_ms = max_stall_ms,
          .prompt_rows = prefill_budget};
}

void AddPolicyOptions(CLI::App& command, SchedulingOptions& options, const char* group) {
  command
      .add_option(
          "--policy", options.policy,
          "how prompts and answers share steps: mixed (both in each step), decode_first, phases "
          "or auto, which is mixed (default: auto)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "mixed", "decode_first", "phases"}).description(""))
      ->group(group);
  AddCount(
      command, "--active-kv-tokens", options.active_kv_tokens,
      "most KV of all running requests together, in tokens of full contexts, for each attention "
      "socket, so that it stays in L3 beside the weights (`larder plan` says how many fit); the "
      "youngest requests wait, and their KV is kept (default: no limit)",
      1)
      ->group(group);
}

void AddStallOptions(CLI::App& command, SchedulingOptions& options, const char* group) {
  command
      .add_option(
          "--max-stall-ms", options.max_stall_ms,
          "most milliseconds that a step of prompts may delay the next tokens of answers, and new "
          "prompts; 0: no limit (default: 200; with decode_first and phases 0)")
      ->type_name("MS")
      ->check(NotFinite)
      ->check(CLI::Range(0.0, 3.6e6).description(""))
      ->group(group);
  AddCount(command, "--prefill-budget", options.prefill_budget,
           "prompt rows per step while others decode (default: as many as --max-stall-ms allows)")
      ->group(group);
}

}  // namespace larder::node::options
