// Plan: which server's sockets compute which layers, on which threads, what joins them and what to expect. A
// pure function of the manifest, the model's shape, the options and each server's topology. It is made once
// per process, before anything is allocated, and handed on: to the engine, to links, to status, metrics and
// the page. The processes of a cluster each make it for themselves and compare hashes.
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

// A stage of the pipeline and where it is.
struct PlacedStage {
  std::string server, socket;          // its weight or colocated socket
  size_t machine = 0;                  // index of its server's topology among those the Plan was made from
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
  StagePlan plan;  // what its threads do; without threads for sockets that nobody has yet

  // Which of its attention sockets this is. Error that lists their names.
  size_t attention_index(std::string_view socket) const;
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
  // Of the weights (model/config/split.h), set by whoever has the file: two models of one shape are not one
  // pipeline. 0: not known.
  uint64_t fingerprint = 0;
  std::vector<PlacedStage> stages;  // at least one
  StagePlan ends;  // what the serving socket computes: embedding and output head; empty if single()
  std::vector<std::vector<ResolvedSocket>> sockets;  // of each server of the manifest
  // Embedding, final norm, output head, sampler: where the first stage is unless the manifest has a serving
  // socket; an empty socket is whoever joins (`larder run --join`).
  std::string serving_server, serving_socket;
  size_t serving_cores = 0;                      // 0: not known
  bool serving_resident = false;                 // the head fits the L3 budget there
  uint64_t head_bytes = 0, embedding_bytes = 0;  // packed, read for each token; looked up
  std::vector<LinkPlan> links;                   // empty if single()
  size_t context = 0, slots = 0;
  size_t frame_rows = 0;              // the most rows of a micro-batch
  size_t micro_batches = 1;           // the most in flight (MicroBatchesOf)
  std::vector<std::string> notes;     // what the user should know
  std::vector<std::string> warnings;  // of them, those about the manifest's sockets
  Prediction prediction;

  // One stage that serves itself, as without a cluster: no frames leave its server.
  bool single() const { return stages.size() == 1 && serving_socket.empty(); }
  bool resident() const;
  // The stage that the socket belongs to, as its weight or one of its attention sockets. Error that lists the
  // sockets, or says where the cores of a socket that was joined went.
  const PlacedStage& stage_of_socket(std::string_view socket) const;
  size_t index_of(const PlacedStage& stage) const { return static_cast<size_t>(&stage - stages.data()); }
  uint64_t weight_bytes() const;   // of all stages and the head
  uint64_t kv_slot_bytes() const;  // of all stages
  // Of what all processes must agree on: the model, context, slots, frames, which socket has which layers and
  // slots. Links between stages compare it. Cores are not part of it: each server knows its own.
  uint64_t hash() const;
  std::string Table() const;
  // The sockets of the manifest's servers, a line each: role, CPUs and why.
  std::string SocketTable() const;
  nlohmann::json Json() const;
};

// The Plan of one machine that runs all of the model, in one stage whose socket is called "socket".
Plan MakePlan(const model::ModelConfig&, const topology::Topology& machine, const PlanOptions&);

// machines: the topology of each of the manifest's servers, in order (LoadTopologies). Layers are split in
// proportion to the L3 budgets (paper section 5, table 1) unless the manifest says `layers`. options.threads
// is for the serving part where the manifest has no serving socket: threads that are not pinned, since stages
// may have the cores. Throws Error for sockets that make no pipeline, too few layers, weights beyond their
// budget where the manifest forbids that.
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
Plan PlanUniformCluster(const model::ModelConfig&, const SocketShape&, const PlanOptions&, const Speeds&);

// Fills `prediction` from the rest of the plan.
void Predict(Plan& plan, const Speeds& speeds);
// Packed bytes of one layer, and of the output head.
uint64_t LayerBytes(const model::ModelConfig& config);
uint64_t HeadBytes(const model::ModelConfig& config);
uint64_t EmbeddingBytes(const model::ModelConfig& config);

}  // namespace larder::pipeline
