// From the command line to an engine: makes the Plan, once, and loads the model by it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/gguf/gguf.h"
#include "node/options/model_options.h"
#include "pipeline/chain/chain_plan.h"
#include "pipeline/engine/engine.h"
#include "pipeline/plan/plan.h"
#include "topology/topology.h"

namespace larder::node::inline loading {

// The Plan and what it was made from.
struct PlannedModel {
  std::optional<ManifestAndServer> where;    // nullopt: this machine without a manifest
  std::vector<topology::Topology> machines;  // the machines of the manifest's servers; without a
                                             // manifest, this one
  pipeline::Plan plan;

  const topology::Topology& machine_of(const pipeline::PlacedStage& stage) const {
    return machines.at(stage.machine);
  }
  // The machine of the serving socket, or of the only stage.
  const topology::Topology& serving_machine() const;
  // The plans of this process's threads: the serving socket's, and those of all stages that are
  // threads of it.
  std::vector<const pipeline::StagePlan*> plans_here(const ModelOptions& options) const;
};

// Plans by the options of the command line; if the stages are running already (options.join), by
// those of the manifest, as the stages do. Logs notes about the manifest's sockets. `machine`: this
// one, or another that
// --topology describes. Throws Error if there is no such plan, or if this version cannot run it.
PlannedModel PlanModel(const model::GgufFile& file, std::optional<ManifestAndServer> where,
                       const topology::Topology& machine, const pipeline::PlanOptions& plan_options,
                       const ModelOptions& options);

// The cluster's name, by which a stage and attention sockets that are processes find each other.
// Throws Error if the manifest, of that path, gives it none.
const std::string& ClusterName(const PlannedModel&, const std::string& manifest);

// Warns in one line if Larder does not have the file's tokenizer. For commands that work with ids
// only; commands that read text refuse the file.
void WarnOfTokenizer(const model::GgufFile& file);

// The chain that all processes of the Plan must agree on, with its links' key if they are between
// processes.
pipeline::ChainPlan ChainOf(const PlannedModel& planned, const ModelOptions& options,
                            bool between_processes);

// The links of a stage to attention sockets of other servers, as this process's socket has them.
// Throws Error if they need a key that there is not.
pipeline::AttentionLinks AttentionLinksOf(const PlannedModel& planned,
                                          const pipeline::PlacedStage& stage,
                                          const std::string& socket, const ModelOptions& options);

// Loads and packs with a progress bar, and logs the plan and the wait policy if verbose; with
// options.residency prints the residency report to stderr. Stages and attention sockets are
// processes that this one connects to (options.join) or threads of this one. progress and status:
// see ChainOptions.
std::unique_ptr<pipeline::Engine> LoadEngine(std::shared_ptr<const model::GgufFile> file,
                                             const PlannedModel& planned,
                                             const ModelOptions& options,
                                             const weight_node::LoadProgress& progress = {},
                                             pipeline::SocketStatus* status = nullptr);

// For ChainOptions; empty if the residency is not to be measured. `machine` outlives the result.
std::function<pipeline::ResidencyBaseline(const pipeline::StagePlan&)> BaselineOf(
    const topology::Topology& machine, const ModelOptions& options);

}  // namespace larder::node::loading
