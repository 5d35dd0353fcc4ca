// The exit codes of `larder`, for scripts and for systemd (docs/cluster.md has the table for
// operators).
#pragma once

#include "rdma/control/peer_monitor.h"

namespace larder::node::inline service {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,  // a set-up or input error, one line on stderr; `larder status`: a socket does not
                // answer
  kUsage = 2,   // wrong usage: a restart changes nothing
  kPeerLost = rdma::kPeerLostExitCode,  // another socket's process is gone: a restart helps
  kInterrupted = 130,                   // ended by SIGINT
  kTerminated = 143,                    // ended by SIGTERM
};
static_assert(kPeerLost == 75, "deploy/larder@.service and docs/cluster.md say so");

}  // namespace larder::node::service
