// Chooses the WaitPolicy of a pool; set-up code, called once.
#pragma once

#include <span>
#include <string>

#include "base/ids.h"
#include "sync/wait.h"
#include "topology/topology.h"

namespace larder::threadpool {

// The policy is
// - spinning, if `isolated` (the user says with --isolated that these cores are ours) or if the
//   kernel command line isolated all of them (isolcpus);
// - adaptive with a tiny spin, if there are more threads than cores;
// - adaptive with a spin of about 50 us otherwise: longer than a layer's waits, shorter than a time
//   slice of the operating system.
// others: CPUs of threads outside this pool that run at the same time.
sync::WaitPolicy ChooseWaitPolicy(const topology::Topology& topology, std::span<const CpuId> cpus,
                                  bool isolated, std::span<const CpuId> others = {});

// "adaptive: 50 us of spinning, then sleep": for `larder doctor` and `plan`.
std::string Describe(const sync::WaitPolicy& policy);

}  // namespace larder::threadpool
