// `larder node` of a stage of a cluster.
#pragma once

#include <memory>
#include <string>

#include "model/gguf/gguf.h"
#include "node/options/model_options.h"
#include "pipeline/plan/manifest_plan.h"

namespace larder::node {

// Whether the socket of that name holds a stage's layers (role weight or colocated) of a cluster.
bool IsStage(const pipeline::Manifest& manifest, const std::string& socket);

// Loads the stage's layers and serves chains, one after the other, until the process ends; once: until the
// first has ended as its serving socket wished.
int RunStage(std::shared_ptr<const model::GgufFile> file, const topology::Topology& machine,
             const pipeline::Manifest& manifest, const std::string& socket, const ModelOptions& options,
             bool once);

// The plan of the stage that an attention socket of the server belongs to, in a cluster or on one server.
pipeline::ManifestPlan PlanOfAttention(const ManifestAndServer& where, const model::ModelConfig& config,
                                       const topology::Topology& machine, const ModelOptions& options,
                                       const std::string& socket);

}  // namespace larder::node
