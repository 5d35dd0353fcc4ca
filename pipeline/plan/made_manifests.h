// Manifests that the program makes, so that one planner plans everything: a machine without a
// manifest is one of a single socket, and sockets that do not exist yet are servers of one socket
// each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace larder::pipeline::inline plan {

// A socket of a cluster that does not exist yet.
struct SocketShape {
  size_t cores = 0;
  uint64_t l3_bytes = 0;  // all its L3 groups together
};

// One server whose only socket, "socket", has the whole model on options.threads cores.
Manifest OneSocket(const PlanOptions& options);

// How a machine of which nobody has said how may run a model.
struct MachineUse {
  std::string what;  // "one pool over 2 packages"
  Manifest manifest;
};
// One pool over all cores first; with several packages, and unless options.threads says how many
// threads, also a pool on the first package alone and, with two, weights on one and KV on the
// other.
std::vector<MachineUse> UsesOf(const topology::Topology& machine, const PlanOptions& options);

// As many colocated sockets, "stage-0" and so on, as hold the model's layers in the share of their
// L3 that is for weights, and one more that serves. Throws Error if the shape has no cores or no
// L3.
Manifest UniformCluster(const model::ModelConfig& config, const SocketShape& socket,
                        const PlanOptions& options);
// The machine of such a socket; its memory is not known.
topology::Topology MachineOf(const SocketShape& socket);

}  // namespace larder::pipeline::plan
