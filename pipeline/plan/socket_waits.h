// SocketWaits: how the threads of a stage's sockets wait for each other. Whoever signals a flag must know
// whether somebody may sleep on it, and the somebody may be another process: so each process of a stage
// decides it for all of the stage's sockets, from the Plan, in the same way; weight and attention sockets
// compare it when they meet (rdma::Hello), and each flag is signalled as those wait who wait for it.
#pragma once

#include <vector>

#include "pipeline/plan/stage_plan.h"
#include "sync/wait.h"
#include "topology/topology.h"

namespace larder::pipeline {

struct SocketWaits {
  sync::WaitPolicy weight;                  // of the weight (or colocated) socket's threads
  std::vector<sync::WaitPolicy> attention;  // of each attention socket's
  // Of all attention sockets together: what the weight socket signals is read by each of them.
  sync::WaitPolicy::Mode attention_mode() const {
    for (const sync::WaitPolicy& wait : attention) {
      if (wait.mode != sync::WaitPolicy::Mode::kSpin) return sync::WaitPolicy::Mode::kAdaptive;
    }
    return sync::WaitPolicy::Mode::kSpin;
  }
};

// A socket spins if the Plan says that its cores are its own (isolated) or the kernel does (isolcpus), and no
// other thread of the stage is on one of them. Asks the kernel of this machine, nobody else.
SocketWaits WaitsOf(const StagePlan& plan, const topology::Topology& machine);

}  // namespace larder::pipeline
