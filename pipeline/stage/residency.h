// Residency: which share of each thread's weights re-reads at the speed of L3. All shards of a stage are
// re-read at once, and compared with what the same threads reached over plain buffers in L3 and in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace larder::pipeline {

// Read bandwidth a thread, all threads reading at once. 0: not measured.
struct ResidencyBaseline {
  double l3_gbps = 0;
  double dram_gbps = 0;
};
// Starts threads on the plan's CPUs: call it while no pool waits on them. Another machine's plan (unpinned)
// is measured on as many of this machine's cores.
ResidencyBaseline MeasureBaseline(const topology::Topology& machine, const StagePlan& plan, double budget_s);

// The time to read a byte is share / l3 + (1 - share) / dram; solved for the share, clamped to 0..1. A shard
// that fits L2 reads faster than L3 and is resident.
double ResidentShare(double reread_gbps, const ResidencyBaseline& baseline);

struct ShardResidency {
  int thread = 0;
  uint64_t bytes = 0;
  double reread_gbps = 0;
  double resident_share = 0;
};
struct Residency {
  ResidencyBaseline baseline;
  std::vector<ShardResidency> shards;  // of each thread; empty: not measured
  double reread_gbps() const;          // of all threads
  uint64_t bytes() const;
  uint64_t resident_bytes() const;
  double resident_share() const;  // of all bytes
  std::string Text() const;
};

}  // namespace larder::pipeline
