// ChainPlan: what all processes of a chain of stages agree on: which socket holds which layers, how they
// reach each other, and the sizes of a frame. Each process adds the Plan of its own socket
// (pipeline/plan/plan.h), which depends on its machine. A process is one link of the chain:
//   serving socket --> stage 0 --> stage 1 ... --> stage P-1 --> serving socket
// Each listens for the one before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "pipeline/chain/stage_frame.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/plan.h"
#include "pipeline/plan/stage_plan.h"
#include "rdma/link/frame_link.h"
#include "rdma/proof/link_key.h"

namespace larder::pipeline {

struct ChainStage {
  std::string socket;
  size_t first_layer = 0;
  size_t layers = 0;
  rdma::LinkEndpoint endpoint;  // where it receives
  rdma::LinkEndpoint next;      // where it sends: the next one's endpoint as this one reaches it (own device)
};

struct ChainPlan {
  std::string cluster;
  model::ModelConfig config;  // of the whole model
  uint64_t plan_hash = 0;     // Plan::hash(): the ends of each link compare it
  std::vector<ChainStage> stages;
  std::string serving_socket;
  rdma::LinkEndpoint serving;  // where the serving socket receives from the last stage
  rdma::LinkEndpoint first;    // where it sends
  size_t context = 0;
  size_t slots = 1;
  size_t frame_rows = 128;
  size_t decode_rows = 32;
  size_t in_flight = 1;  // micro-batches
  // Where the slots of each attention socket end, the same for all separated stages; empty: all colocated.
  std::vector<size_t> slot_ends;
  // The cluster's, of every link; null: none. It is proven, not compared.
  std::shared_ptr<const rdma::LinkKey> link_key;

  StageFrameShape frame_shape() const;
  rdma::LinkShape link_shape() const;
  rdma::LinkIdentity identity(const std::string& socket, uint64_t session = 0) const {
    return {plan_hash, socket, cluster, session, link_key};
  }

  // Stations of the loop: the stages from 1, 0: the serving socket.
  const std::string& station(uint32_t n) const {
    return n > 0 && n <= stages.size() ? stages[n - 1].socket : serving_socket;
  }

  // The options of a socket's own Plan: what the chain decides for it, over what its machine and the user
  // say.
  PlanOptions OptionsOf(PlanOptions options) const;
  // Error if the Plan of a stage does not fit the chain: other slots, other attention sockets.
  void CheckStage(const StagePlan& plan) const;
};

// Of a Plan with several stages or a serving socket. Who serves without a socket of its own in the manifest
// receives on the first stage's server, one port below the first stage's.
ChainPlan ChainOf(const Manifest&, const Plan&);

}  // namespace larder::pipeline
