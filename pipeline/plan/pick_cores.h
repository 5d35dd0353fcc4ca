// The cores and CPUs of a machine that a manifest's core set names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "pipeline/manifest/cores.h"
#include "topology/topology.h"

namespace larder::pipeline::inline plan {

struct PickedCores {
  std::vector<CoreId> cores;  // sorted by L3 group, then number
  // With smt all SMT siblings of each core; else its first CPU, or the one that "cpus:" names.
  std::vector<CpuId> cpus;
};

// Returns nullopt if the machine lacks a part of the set or the set is empty; *problem then says
// what is missing and what the machine has.
std::optional<PickedCores> PickCoreSet(const CoreSet& set, bool smt,
                                       const topology::Topology& topology, std::string* problem);

}  // namespace larder::pipeline::plan
