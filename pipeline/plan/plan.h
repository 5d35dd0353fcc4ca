// ClusterPlan: which server's sockets compute which layers, what joins them and what to expect. A pure
// function of the manifest, the model's shape, the options and each server's topology; computed by every
// process of a cluster for itself, compared by hash. Nothing is allocated. A server's own part, the Plan,
// follows from a stage's options (MakePlan).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/config.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/prediction.h"
#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace larder::pipeline {

struct PlacedStage {
  std::string server, socket;
  std::vector<std::string> attention;  // sockets of the same server that own the KV of these layers; empty:
                                       // colocated
  size_t first_layer = 0, layers = 0;  // [first_layer, first_layer + layers)
  size_t cores = 0;                    // of the weight or colocated socket
  size_t attention_cores = 0;
  bool holds_head = false;                     // one stage that serves itself
  uint64_t weight_bytes = 0;                   // packed, of its layers (and of the head if it holds it)
  uint64_t l3_bytes = 0, l3_budget_bytes = 0;  // of all L3 groups that its cores touch; 0: not known
  uint64_t kv_slot_bytes = 0;                  // of a sequence at full context, its layers
  uint64_t kv_room_bytes = 0;                  // of L3: beside the weights, or of its attention sockets
  bool resident = false;                       // each L3 group has room for its threads' weights
  PlanOptions options;  // for MakePlan on its server: cores, CPUs, attention, context, slots, frame rows
};

// A connection of the loop serving -> stage 0 -> ... -> serving. Names are sockets; "" is whoever serves.
struct LinkPlan {
  std::string from, to;
  Transport transport = Transport::kShm;  // never kAuto
  Endpoint listener;  // of `to`; whoever serves listens beside the first stage, one port below it
};

struct Plan {
  std::string cluster;  // the manifest's name
  model::ModelConfig config;
  std::vector<PlacedStage> stages;  // at least one
  // Embedding, final norm, output head, sampler: where the first stage is unless the manifest has a serving
  // socket; an empty socket is whoever joins (`larder run --join`).
  std::string serving_server, serving_socket;
  size_t serving_cores = 0;                      // 0: not known
  bool serving_resident = false;                 // the head fits the L3 budget there
  uint64_t head_bytes = 0, embedding_bytes = 0;  // packed, read for each token; looked up
  std::vector<LinkPlan> links;                   // empty if single()
  size_t context = 0, slots = 0;
  size_t frame_rows = 0;     // the most rows of a micro-batch
  size_t micro_batches = 1;  // the most in flight (MicroBatchesOf)
  std::vector<std::string> notes;
  Prediction prediction;

  // One stage that serves itself, as without a cluster: no frames leave its server.
  bool single() const { return stages.size() == 1 && serving_socket.empty(); }
  bool resident() const;
  // The stage that the socket belongs to, as its weight or one of its attention sockets. Error that lists the
  // sockets, or says where the cores of a socket that was joined went.
  const PlacedStage& stage_of_socket(std::string_view socket) const;
  uint64_t weight_bytes() const;   // of all stages and the head
  uint64_t kv_slot_bytes() const;  // of all stages
  // Of what all processes must agree on: shape, context, slots, frames, which socket has which layers. Cores
  // are not part of it: each server knows its own.
  uint64_t hash() const;
  std::string Table() const;
  nlohmann::json Json() const;

  std::vector<std::pair<std::string, std::string>> joined;  // socket, and the one that has its cores now
};

// machines: the topology of each of the manifest's servers, in order (LoadTopologies). Layers are split in
// proportion to the L3 budgets (paper section 5, table 1) unless the manifest says `layers`. Throws Error for
// sockets that make no pipeline, too few layers, weights beyond their budget where the manifest forbids that.
Plan MakePlan(const Manifest&, const model::ModelConfig&, const PlanOptions&,
                        std::span<const topology::Topology> machines, const Speeds& = {});

// Each server's own XML file, or `here`.
std::vector<topology::Topology> LoadTopologies(const Manifest&, const topology::Topology& here);

// A socket of a cluster that nobody has yet.
struct SocketShape {
  size_t cores = 0;
  uint64_t l3_bytes = 0;  // of all its L3 groups
};
// How many such sockets hold the model, and what they would do: one more serves.
Plan PlanUniformCluster(const model::ModelConfig&, const SocketShape&, const PlanOptions&,
                               const Speeds&);

// Fills `prediction` from the rest of the plan.
void Predict(Plan& plan, const Speeds& speeds);
// Packed bytes of one layer, and of the output head.
uint64_t LayerBytes(const model::ModelConfig& config);
uint64_t HeadBytes(const model::ModelConfig& config);
uint64_t EmbeddingBytes(const model::ModelConfig& config);

}  // namespace larder::pipeline
