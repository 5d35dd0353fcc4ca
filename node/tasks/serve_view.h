// What a server shows of its machine, or of all machines of its cluster: the Plan and the sockets' counters
// as serving/metrics/status.h has them.
#pragma once

#include <string>
#include <vector>

#include "node/options/model_options.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/scheduler.h"
#include "serving/metrics/status.h"
#include "topology/topology.h"

namespace larder::node {

// The engine's sockets, and in a cluster those of its manifest, on whichever server. Names are unique.
serving::PlanView ViewOfPlan(const pipeline::Engine&, const topology::Topology&, const ModelOptions&,
                             const model::ModelConfig&, const std::string& chat_format);
// Names of its sockets, the label of their metrics.
std::vector<std::string> SocketNames(const serving::PlanView&);
// Slots and sockets as they are now. Any thread.
void FillStatus(const pipeline::Engine&, const pipeline::Scheduler&, const serving::PlanView&,
                serving::StatusView&);
void FillMetrics(const pipeline::Engine&, const pipeline::Scheduler&, const serving::PlanView&,
                 serving::ServingMetrics&);

}  // namespace larder::node
