// The options of a stage and of the serving socket, besides the Plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/kv_store/kv_part.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/residency/residency.h"
#include "pipeline/stage/attention_link.h"
#include "rdma/proof/link_key.h"
#include "sync/wait.h"
#include "weight_node/shards.h"

namespace larder::pipeline::inline stage {

struct StageOptions {
  sync::WaitPolicy wait;  // for the stage's own threads
  // Separated plans: for each attention socket's threads; empty: as `wait`. See SocketWaits.
  std::vector<sync::WaitPolicy> attention_waits;
  // Called on the constructing thread now and then while weights load. May be empty.
  weight_node::LoadProgress progress;
  // Returns the read bandwidth of the plan's threads from L3 and from memory; called before the
  // threads start. The residency of the packed weights is measured against it. Empty: residency is
  // not measured.
  std::function<ResidencyBaseline(const StagePlan&)> baseline;
  // Separated plans: the cluster whose attention sockets run as processes (`larder node`); empty:
  // they are threads of this one.
  std::string processes;
  std::string socket = "weights";  // this socket's name, as its attention sockets and its files
                                   // have it
  std::shared_ptr<const rdma::LinkKey> link_key;  // the cluster's key, proven to their processes;
                                                  // null: none
  AttentionLinks attention_links;                 // to those of other servers
  int connect_timeout_ms = 10000;                 // time limit for connecting to these, and to the
                                                  // next stage of a chain
  // Files for the parts of KV chunks of the sockets in this process: of a colocated stage, under
  // the name `socket`, or of attention sockets that are threads.
  KvPartOptions kv_files;
};

}  // namespace larder::pipeline::stage
