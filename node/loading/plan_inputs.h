// What a Plan is made from where no model need be loaded: a file or only a model's shape, a
// machine, a manifest or sockets that do not exist yet, and the speeds of a prediction. For `larder
// plan` and `larder simulate`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "node/options/model_options.h"
#include "pipeline/plan/plan.h"
#include "topology/topology.h"

namespace CLI {
class App;
}

namespace larder::node::inline loading {

struct PlanInputOptions {
  ModelOptions model;
  std::string shape, type;
  bool measure = false;
  size_t socket_cores = 0;  // 0: as on this machine
  std::string socket_l3;    // such as "1152M"; empty: as on this machine
  pipeline::Speeds speeds;

  bool sockets_given() const { return socket_cores != 0 || !socket_l3.empty(); }
};
void AddPlanInputs(CLI::App& command, PlanInputOptions& options);

struct PlanInputs {
  std::optional<ManifestAndServer> where;
  std::shared_ptr<const model::GgufFile> file;  // null: a shape without a file
  model::ModelConfig config;
  topology::Topology machine;
};
// Throws CLI::ValidationError for options that do not go together; `command` is for its text.
PlanInputs ReadPlanInputs(const PlanInputOptions& options, const std::string& command);

// The inputs of a prediction: values from flags take precedence over those that --measure finds
// here.
pipeline::Speeds SpeedsOf(const PlanInputOptions& options, const topology::Topology& machine);
// The shape of the sockets to plan for: as the flags describe them, else as this machine's first
// package.
pipeline::SocketShape SocketOf(const PlanInputOptions& options, const topology::Topology& machine);
pipeline::PlanOptions PlanOptionsOf(const PlanInputOptions& options, const PlanInputs& inputs);
// The Plan at SpeedsOf: of the sockets that are given, else of the manifest, else of the machine.
pipeline::Plan PlanOf(const PlanInputOptions& options, const PlanInputs& inputs);

}  // namespace larder::node::loading
