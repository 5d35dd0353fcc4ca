// The checks of `larder doctor`: settings of the host, measured bandwidths and hand-over times, the
// kernels' self-checks, and with a model the residency of its weights. Findings are plain data,
// printed by node/commands/doctor.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/formats/isa.h"
#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace larder::node::inline machine {

enum class Health { kOk, kNote, kWarn, kBad };  // kNote: information only
std::string_view HealthName(Health health);     // "ok", "note", "warn", "bad"

struct Diagnosis {
  Health health = Health::kOk;
  std::string what;
  std::string value;
  std::string advice;                                        // empty: nothing to do
  std::vector<std::pair<std::string, double>> figures = {};  // the numbers in `value`: "l3_gbps"
};

std::vector<Diagnosis> DiagnoseHost(const topology::Topology& machine);
// Whether each NUMA node has room for what the plan's threads keep there; nothing on a machine of
// one node.
std::vector<Diagnosis> DiagnoseNodes(const pipeline::StagePlan& plan);
// Takes about `seconds`.
std::vector<Diagnosis> DiagnoseBandwidth(const topology::Topology& machine, double seconds);
std::vector<Diagnosis> DiagnoseHandOver(const topology::Topology& machine);
// Makes every kind of kernel for the instruction set; making one checks it against the scalar
// reference.
Diagnosis DiagnoseKernels(kernels::Isa isa);
// Whether there are schedules for this CPU, in the file that a process would use (--schedules).
Diagnosis DiagnoseSchedules(kernels::Isa isa, const std::string& given);

}  // namespace larder::node::machine
