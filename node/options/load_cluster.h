// The serving side of a cluster: what `--manifest` means where a model's layers are stages of a chain.
#pragma once

#include <memory>

#include "model/gguf/gguf.h"
#include "node/options/model_options.h"
#include "pipeline/engine/engine.h"
#include "pipeline/plan/plan.h"

namespace larder::node {

// Whether a manifest describes a chain: several stages, or a serving socket.
bool IsCluster(const pipeline::Manifest& manifest);

struct Cluster {
  pipeline::Plan plan;
  pipeline::ChainPlan chain;
};
// What every process of a cluster computes for itself. Logs the plan's notes as warnings.
Cluster PlanOfCluster(const pipeline::Manifest& manifest, const model::ModelConfig& config,
                      const topology::Topology& machine, const pipeline::PlanOptions& options);

// What all processes of the cluster plan with: where the stages run already (options.join), what the manifest
// says and nothing of the command line.
pipeline::PlanOptions AgreedOptions(const pipeline::PlanOptions& plan_options, const ModelOptions& options);

// Connects to the stages' processes (options.join), or makes them threads of this one.
std::unique_ptr<pipeline::Engine> LoadClusterEngine(
    std::shared_ptr<const model::GgufFile> file, const topology::Topology& machine,
    const pipeline::Manifest& manifest, const pipeline::PlanOptions& plan_options,
    const ModelOptions& options, const LoadProgress& progress = {}, pipeline::SocketStatus* status = nullptr);

// Waiting for all of the plans' threads, which are one process's and wait alike. isolated: --isolated; else
// they spin if the manifest says so of all their sockets.
sync::WaitPolicy WaitPolicyFor(const topology::Topology& machine, std::span<const pipeline::StagePlan> plans,
                               bool isolated);

}  // namespace larder::node
