// From the command line to an engine: the Plan, which is made once and handed on, and what is loaded by it.
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

namespace larder::node {

// The Plan and what it was made from.
struct PlannedModel {
  std::optional<ManifestAndServer> where;    // none: this machine alone
  std::vector<topology::Topology> machines;  // of the manifest's servers, in order; else this one
  pipeline::Plan plan;

  const topology::Topology& machine_of(const pipeline::PlacedStage& stage) const {
    return machines.at(stage.machine);
  }
  // Where the serving socket, or the only stage, is.
  const topology::Topology& serving_machine() const;
  // Of the threads of this process: those of all stages if they are threads of it, and the serving socket's.
  std::vector<const pipeline::StagePlan*> plans_here(const ModelOptions& options) const;
};

// Plans with what the command line says; where the stages run already (options.join), with what the manifest
// says, as they do. Logs what the user should know of the manifest's sockets. `machine`: this one, or another
// that --topology describes. Throws Error if there is no such plan, or one that this version cannot run.
PlannedModel PlanModel(const model::GgufFile& file, std::optional<ManifestAndServer> where,
                       const topology::Topology& machine, const pipeline::PlanOptions& plan_options,
                       const ModelOptions& options);

// What all processes of the Plan's chain agree on; with the key of its links, if they are between processes.
pipeline::ChainPlan ChainOf(const PlannedModel& planned, const ModelOptions& options, bool between_processes);

// Bytes packed so far, bytes in all; on the calling thread.
using LoadProgress = std::function<void(uint64_t, uint64_t)>;

// Loads and packs with a progress bar, and logs plan and waiting if verbose; with options.residency prints
// the report to stderr. Stages and attention sockets are processes that this one connects to (options.join)
// or threads of it. status: see StageOptions.
std::unique_ptr<pipeline::Engine> LoadEngine(std::shared_ptr<const model::GgufFile> file,
                                             const PlannedModel& planned, const ModelOptions& options,
                                             const LoadProgress& progress = {},
                                             pipeline::SocketStatus* status = nullptr);

// For StageOptions: empty if nobody wants to know the residency. `machine` outlives it.
std::function<pipeline::ResidencyBaseline(const pipeline::StagePlan&)> BaselineOf(
    const topology::Topology& machine, const ModelOptions& options);

}  // namespace larder::node
