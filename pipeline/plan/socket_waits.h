// SocketWaits: how the threads of a stage's sockets wait for each other. The thread that signals a
// flag must know whether a waiting thread may sleep on it, and that thread may be in another
// process. So each process of a stage derives the policies of all of the stage's sockets from the
// Plan, in the same way. Weight and attention sockets compare them when they connect (rdma::Hello),
// and each flag is signalled in the way that its waiting threads need.
#pragma once

#include <vector>

#include "pipeline/plan/stage_plan.h"
#include "sync/wait.h"
#include "topology/topology.h"

namespace larder::pipeline::inline plan {

struct SocketWaits {
  sync::WaitPolicy weight;                  // the weight (or colocated) socket's threads
  std::vector<sync::WaitPolicy> attention;  // each attention socket's threads
  // The mode of all attention sockets together, since each of them reads what the weight socket
  // signals.
  sync::WaitPolicy::Mode attention_mode() const {
    for (const sync::WaitPolicy& wait : attention) {
      if (wait.mode != sync::WaitPolicy::Mode::kSpin) return sync::WaitPolicy::Mode::kAdaptive;
    }
    return sync::WaitPolicy::Mode::kSpin;
  }
};

// A socket spins if its cores are its own, by the Plan (isolated) or the kernel (isolcpus), and no
// other thread of the stage runs on one of them. Asks only this machine's kernel. here: the
// attention socket of another server than its weight socket's, whose machine this is; none: the
// weight socket's. For a socket of the other server a thread of this one stands in
// (pipeline/stage/attention_link.h), which sleeps: its core, if it has one, is in no socket.
SocketWaits WaitsOf(const StagePlan& plan, const topology::Topology& machine,
                    AttentionId here = AttentionId());

}  // namespace larder::pipeline::plan
