// Residency: the share of each thread's weights that is re-read at the speed of L3. All shards of a
// stage are re-read at once, and the bandwidth is compared with what the same threads reached on
// plain buffers in L3 and in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace larder::pipeline::inline residency {

// Read bandwidth per thread, all threads reading at once. 0: not measured.
struct ResidencyBaseline {
  double l3_gbps = 0;
  double dram_gbps = 0;
};
// Starts threads on the plan's CPUs: call it while no pool waits on them. A plan for another
// machine (unpinned) is measured on the same number of this machine's cores.
ResidencyBaseline MeasureBaseline(const topology::Topology& machine, const StagePlan& plan,
                                  double budget_s);

// The time to read a byte is share / l3 + (1 - share) / dram; this returns the share, clamped to
// 0..1. A shard that fits L2 is read faster than L3 and counts as resident.
double ResidentShare(double reread_gbps, const ResidencyBaseline& baseline);

struct ShardResidency {
  int thread = 0;
  uint64_t bytes = 0;
  double reread_gbps = 0;
  double resident_share = 0;
};
struct Residency {
  ResidencyBaseline baseline;
  std::vector<ShardResidency> shards;  // per thread; empty: not measured
  double reread_gbps() const;          // all threads together
  uint64_t bytes() const;
  uint64_t resident_bytes() const;
  double resident_share() const;  // as a share of all bytes
  std::string Text() const;
};

}  // namespace larder::pipeline::residency
