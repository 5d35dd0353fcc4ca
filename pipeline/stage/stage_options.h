// What a stage, the serving socket and the engine on top of them are told beside the Plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/residency.h"
#include "pipeline/stage/socket_status.h"
#include "rdma/proof/link_key.h"
#include "sync/wait.h"

namespace larder::pipeline {

// Another socket of the cluster that is gone.
struct LostPeer {
  std::string socket;  // its name
  std::string reason;
};

struct StageOptions {
  sync::WaitPolicy wait;  // of the stage's own threads
  // Separated plans: of each attention socket's; empty: as `wait`. See SocketWaits.
  std::vector<sync::WaitPolicy> attention_waits;
  // Called on the constructing thread now and then while weights load: bytes packed so far, bytes in all. May
  // be empty.
  std::function<void(uint64_t, uint64_t)> progress;
  // What the plan's threads read from L3 and from memory, asked before they start; the residency of the
  // weights is measured by it when they are packed. Empty: it is not.
  std::function<ResidencyBaseline(const StagePlan&)> baseline;
  // Separated plans: the cluster whose attention sockets run as processes (`larder node`); empty: they are
  // threads of this one.
  std::string processes;
  std::string socket = "weights";  // this socket's name, which its attention sockets know it by
  std::shared_ptr<const rdma::LinkKey> link_key;  // the cluster's, proven to their processes; null: none
  int connect_timeout_ms = 10000;
  // In a chain: a frame that a stage computes for longer is a fault of the chain, with the stage's name. 0:
  // no limit.
  int frame_limit_ms = 10000;
  std::function<void(const LostPeer&)> on_lost;  // a chain's ends: see ChainClient
  SocketStatus* status = nullptr;  // where an Engine counts its frames; outlives it. Null: it has its own
  bool last = false;               // a chain's last stage: only rows whose logits are wanted leave it
};

}  // namespace larder::pipeline
