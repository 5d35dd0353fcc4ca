// Which WaitPolicy suits a pool: set-up code, asked once.
#pragma once

#include <span>
#include <string>

#include "base/ids.h"
#include "sync/wait.h"
#include "topology/topology.h"

namespace larder::threadpool {

// isolated: the user says (--isolated) that these cores are ours. Also spins, without being told, if the
// kernel command line isolated all of them (isolcpus). More threads than cores: adaptive with a tiny spin.
// Otherwise adaptive with a spin of about 50 us, longer than a layer's waits and shorter than a scheduler's
// slice.
// others: CPUs of threads that run at the same time and are not this pool's.
sync::WaitPolicy ChooseWaitPolicy(const topology::Topology& topology, std::span<const CpuId> cpus,
                                  bool isolated, std::span<const CpuId> others = {});

// "adaptive: 50 us of spinning, then sleep": for `larder doctor` and `plan`.
std::string Describe(const sync::WaitPolicy& policy);

}  // namespace larder::threadpool
