// The options of a stage, the serving socket and the engine above them, besides the Plan.
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
#include "weight_node/shards.h"

namespace larder::pipeline::inline stage {

// Another socket of the cluster that is gone.
struct LostPeer {
  std::string socket;  // its name
  std::string reason;
};

struct StageOptions {
  sync::WaitPolicy wait;  // for the stage's own threads
  // Separated plans: for each attention socket's threads; empty: as `wait`. See SocketWaits.
  std::vector<sync::WaitPolicy> attention_waits;
  // Called on the constructing thread now and then while weights load. May be empty.
  weight_node::LoadProgress progress;
  // Returns the read bandwidth of the plan's threads from L3 and from memory; called before the threads
  // start. The residency of the packed weights is measured against it. Empty: residency is not measured.
  std::function<ResidencyBaseline(const StagePlan&)> baseline;
  // Separated plans: the cluster whose attention sockets run as processes (`larder node`); empty: they are
  // threads of this one.
  std::string processes;
  std::string socket = "weights";                 // this socket's name, as its attention sockets know it
  std::shared_ptr<const rdma::LinkKey> link_key;  // the cluster's key, proven to their processes; null: none
  int connect_timeout_ms = 10000;
  // In a chain: if a stage computes a micro-batch for longer, the chain fails and names the stage. 0: no
  // limit.
  int frame_limit_ms = 10000;
  std::function<void(const LostPeer&)> on_lost;  // for the serving socket of a chain; see ChainClient
  // Where an Engine counts its micro-batches; must outlive it. Null: the Engine has its own.
  SocketStatus* status = nullptr;
  bool last = false;  // the last stage of a chain: it sends only rows that want logits
};

}  // namespace larder::pipeline::stage
