// ChainPlan: what all processes of a chain of stages agree on: each socket's layers, their
// endpoints, and the sizes of a frame. Each process adds the StagePlan of its own socket
// (pipeline/plan/stage_plan.h), which depends on its machine. The processes form a loop:
//   serving socket --> stage 0 --> stage 1 ... --> stage P-1 --> serving socket
// Each of them listens for the one before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/step/capacity.h"
#include "pipeline/chain/stage_frame.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/plan.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/attention_link.h"
#include "rdma/link/frame_link.h"
#include "rdma/proof/link_key.h"

namespace larder::pipeline::inline chain {

struct ChainStage {
  std::string socket;
  size_t first_layer = 0;
  size_t layers = 0;
  rdma::LinkEndpoint endpoint;  // where it receives
  rdma::LinkEndpoint next;  // where it sends: the next one's endpoint, with this one's own device
};

struct ChainPlan {
  std::string cluster;
  model::ModelConfig config;  // the whole model's
  uint64_t plan_hash = 0;     // Plan::hash(), which the ends of each link compare
  std::vector<ChainStage> stages;
  std::string serving_socket;
  rdma::LinkEndpoint serving;  // where it receives from the last stage
  rdma::LinkEndpoint first;    // where it sends to the first stage
  model::Capacity capacity;
  // Where the slots of each attention socket end, the same for all separated stages; empty: all
  // colocated.
  std::vector<SlotId> slot_ends;
  // Where the KV chunks of each class of each attention socket end (attention_node/kv_region.h), as
  // StagePlan::kv_pools; all colocated: as of one socket.
  std::vector<size_t> chunk_ends;
  // Where those of each socket end.
  std::vector<size_t> socket_chunk_ends() const;
  // The cluster's key, for every link; null: none. The ends prove that they know it.
  std::shared_ptr<const rdma::LinkKey> link_key;

  // What the model is to one of its stages: its layers.
  model::ModelConfig StageConfig(const ChainStage&) const;
  StageFrameShape frame_shape() const;
  rdma::LinkShape link_shape() const;
  rdma::LinkIdentity identity(const std::string& socket, uint64_t session = 0) const {
    return {plan_hash, socket, cluster, session, link_key};
  }

  // The name of the socket of this rank, a socket's number in the chain: 0 is the serving socket,
  // the stages are numbered from 1.
  const std::string& socket_of_rank(uint32_t rank) const {
    return rank > 0 && rank <= stages.size() ? stages[rank - 1].socket : serving_socket;
  }

  // Takes slot_ends and chunk_ends from a stage, unless a separated one has set them.
  void DivideLike(const StagePlan& plan);
  // Throws Error if a stage's Plan disagrees with the chain about slots or attention sockets.
  void CheckStage(const StagePlan& plan) const;
};

// The ChainPlan of a Plan with several stages or a serving socket. Without a serving socket in the
// manifest, the serving process receives on the first stage's server, one port below that stage's.
ChainPlan ChainOf(const Manifest&, const Plan&);

// How a weight socket and its attention sockets of other servers reach each other. socket: the one
// of this process, the stage's weight socket or one of its attention sockets.
AttentionLinks AttentionLinksOf(const Manifest&, const Plan&, const PlacedStage&,
                                const std::string& socket,
                                const std::shared_ptr<const rdma::LinkKey>& key);

}  // namespace larder::pipeline::chain
