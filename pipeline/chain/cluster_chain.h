// From a cluster's plan to what its processes run: the chain that all of them agree on, and the Plan of a
// process's own socket on its own machine.
#pragma once

#include "pipeline/chain/chain_plan.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/plan.h"
#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace larder::pipeline {

// Who serves without a socket of its own in the manifest receives on the first stage's server, one port below
// the first stage's.
ChainPlan ChainOf(const Manifest&, const Plan&);

// `machine`: the stage's server.
StagePlan PlanOfStage(const Plan&, size_t stage, const topology::Topology& machine);
// The serving socket's part: on its cores, or, where it is whoever joins, on `threads` cores of `machine`,
// not pinned, since stages may have these.
StagePlan PlanOfEnds(const Manifest&, const Plan&, size_t threads, const topology::Topology& machine);

}  // namespace larder::pipeline
