// Plan: which server's sockets compute which layers, on which threads, which links connect them and
// what speed to expect. A pure function of the manifest, the model's shape, the options and each
// server's topology. It is made once per process, before any allocation, and passed on: to the
// engine, links, status, metrics and the page. Each process of a cluster makes it for itself; links
// compare the hashes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/config.h"
#include "model/step/capacity.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/made_manifests.h"
#include "pipeline/plan/resolve.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/prediction/prediction.h"
#include "rdma/link/frame_link.h"
#include "topology/topology.h"

namespace larder::pipeline::inline plan {

// A stage of the pipeline and its place in the cluster.
struct PlacedStage {
  std::string server, socket;  // its weight or colocated socket
  size_t machine = 0;          // index of its server's topology among those the Plan was made from
  // The sockets that hold the KV cache of these layers; empty: colocated.
  std::vector<std::string> attention;
  std::vector<size_t> attention_machines;  // of these sockets, as `machine`
  bool attention_elsewhere() const {       // one of them is on another server
    return std::ranges::any_of(attention_machines, [&](size_t at) { return at != machine; });
  }
  size_t first_layer = 0, layers = 0;  // [first_layer, first_layer + layers)
  size_t cores = 0;                    // the weight or colocated socket's
  size_t attention_cores = 0;
  PackageSpan packages;
  bool holds_lm_head = false;  // it is a single stage that serves itself
  uint64_t weight_bytes = 0;   // packed bytes of its layers (and of the lm_head if it holds it)
  uint64_t l3_bytes = 0, l3_budget_bytes = 0;  // bytes of all its L3 groups together; 0: not known
  uint64_t kv_slot_bytes = 0;                  // KV bytes of a sequence at full context, in its
                                               // layers
  uint64_t kv_room_bytes = 0;  // L3 for KV: beside the weights, or of its attention sockets
  bool resident = false;       // each L3 group has room for its threads' weights
  StagePlan plan;              // what its threads do

  // The id of an attention socket. Throws an Error that lists their names.
  AttentionId attention_id(std::string_view socket) const;
};

// A connection of the loop serving -> stage 0 -> ... -> serving. Names are sockets; "" is the
// serving process if the manifest has no serving socket.
struct LinkPlan {
  std::string from, to;
  rdma::Transport transport = rdma::Transport::kSharedMemory;
  // The endpoint of `to`. Without a serving socket the serving process listens on the first stage's
  // server, one port below the stage's.
  Endpoint listener;
};

struct Plan {
  std::string cluster;  // the manifest's name
  model::ModelConfig config;
  // Like StagePlan::fingerprint: stages with different models of one shape do not connect.
  uint64_t fingerprint = 0;
  std::vector<PlacedStage> stages;  // at least one
  StagePlan ends;  // what the serving socket computes: embedding and lm_head; empty if single()
  std::vector<std::vector<ResolvedSocket>> sockets;  // [server of the manifest]
  // Where embedding, final norm, lm_head and sampler run: on the first stage's server unless the
  // manifest has a serving socket. An empty socket name: a process that joins (`larder run
  // --join`).
  std::string serving_server, serving_socket;
  size_t serving_cores = 0;       // 0: not known
  bool serving_resident = false;  // the lm_head fits the L3 budget there
  // A process joins to serve, and sockets have all cores of the first stage's server.
  bool serves_beside = false;
  // Packed. The lm_head is read for each token, the embedding is looked up.
  uint64_t lm_head_bytes = 0, embedding_bytes = 0;
  std::vector<LinkPlan> links;  // empty if single(), and between sockets that do not exist yet
  model::Capacity capacity;
  // What a machine of several packages is used as, and why; empty: there was nothing to choose.
  std::string use;
  std::vector<std::string> notes;  // what the user should know
  size_t socket_notes = 0;  // the first notes, of this number, are about the manifest's sockets
  Prediction prediction;
  bool layers_by_time = false;  // the manifest does not name them (LayersByTime)

  std::span<const std::string> notes_of_sockets() const {
    return std::span(notes).first(socket_notes);
  }
  // A single stage that serves itself, as without a cluster: no frames leave its server.
  bool single() const { return stages.size() == 1 && serving_socket.empty(); }
  bool resident() const;
  // The stage that the socket belongs to, as its weight socket or one of its attention sockets.
  // Throws an Error that lists the sockets or, for a socket that was joined, says where its cores
  // went.
  const PlacedStage& stage_of_socket(std::string_view socket) const;
  size_t index_of(const PlacedStage& stage) const {
    return static_cast<size_t>(&stage - stages.data());
  }
  // What the stage computes: its layers, and with them the ends if it serves itself.
  model::ModelConfig config_of(const PlacedStage& stage) const;
  uint64_t weight_bytes() const;   // all stages and the lm_head
  uint64_t kv_slot_bytes() const;  // all stages
  uint64_t kv_bytes() const;       // all stages and slots
  // The identity of what all stages compute together; stored results are bound to it (IdentityOf).
  uint64_t identity() const;
  // A hash of what all processes must agree on: the identity, context, slots, frames, and each
  // socket's layers and slots. Links between stages compare it. Cores are not part of it: each
  // server knows its own.
  uint64_t hash() const;
  std::string Table() const;
  // A line for people: the slowest and the fastest stage, and who divided the layers. Empty if
  // there is one stage.
  std::string SplitLine() const;
  // The sockets of the manifest's servers, one line each: role, CPUs, and the reason for the role.
  std::string SocketTable() const;
  // What `larder plan --json` prints. A stage has the keys of StagePlan::Json() if its sockets
  // exist.
  nlohmann::json Json() const;
};

// The Plan of one machine without a manifest, which runs the whole model in one stage whose socket
// is called "socket". A machine of several packages is used as UsesOf has it, in the way that is
// predicted to be fastest by assumed speeds with all slots at full context: one pool over all of
// them, unless another is faster by a tenth.
Plan MakePlan(const model::ModelConfig&, const topology::Topology& machine, const PlanOptions&,
              const Speeds& = {});

// machines: the topology of each of the manifest's servers, in order (LoadTopologies). Layers are
// split as LayersByTime says unless the manifest says `layers`. options.threads is for the serving
// part if the manifest has no serving socket; these threads are not pinned, since stages may have
// the cores. Throws Error if the sockets do not form a pipeline, if there are too few layers, and
// for weights beyond their budget where the manifest forbids that.
Plan MakePlan(const Manifest&, const model::ModelConfig&, const PlanOptions&,
              std::span<const topology::Topology> machines, const Speeds& = {});

// The topology of each server's own XML file, or `here`.
std::vector<topology::Topology> LoadTopologies(const Manifest&, const topology::Topology& here);

// The Plan of as many sockets that do not exist yet as hold the model, and one more that serves.
Plan PlanUniformCluster(const model::ModelConfig&, const SocketShape&, const PlanOptions&,
                        const Speeds&);

// What the time of a stage depends on beside its layers.
struct StageResources {
  size_t cores = 0;
  uint64_t l3_bytes = 0, l3_budget_bytes = 0;  // 0: not known
  // The share of its weights in the L3 group that they fill most, by the group's share of the
  // budget: 1 if they fill all groups alike.
  double fullest_share = 1;
  size_t kv_cores = 0;
  bool attention_elsewhere = false;  // each layer sends rows over links and waits for others
  PackageSpan packages;
  uint64_t kv_room_bytes = 0;      // L3 for KV,
  bool kv_beside_weights = false;  // less the weights
};
// The layers of each stage such that the slowest stage is fastest, with as many sequences in flight
// as there are slots, at their full context. The speeds are those that Speeds assumes, whatever is
// measured or given, so that all processes of a cluster divide alike. A stage whose L3 is not known
// counts as resident. serves_beside: lm_head is computed on the cores of the first stage.
std::vector<size_t> LayersByTime(const model::ModelConfig&, const model::Capacity&,
                                 std::span<const StageResources>, bool serves_beside);

// What to expect of the Plan at these speeds; its `prediction` is that of the speeds that it was
// made with.
Prediction PredictionOf(const Plan& plan, const Speeds& speeds);
// Packed bytes of one layer, of the lm_head, and of the embedding table.
uint64_t LayerBytes(const model::ModelConfig& config);  // the mean: layers may differ in their
                                                        // types
uint64_t LmHeadBytes(const model::ModelConfig& config);
uint64_t EmbeddingBytes(const model::ModelConfig& config);

}  // namespace larder::pipeline::plan
