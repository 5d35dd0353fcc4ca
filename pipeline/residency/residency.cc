#include "pipeline/residency/residency.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/probe.h"

namespace larder::pipeline::inline residency {
ResidencyBaseline MeasureBaseline(const topology::Topology& machine, const StagePlan& plan,
                                  double budget_s) {
  const size_t threads = plan.threads.size();
  std::vector<CpuId> cpus;
  topology::MachineBandwidth found;
  if (machine.from_xml()) {
    const auto here = topology::Topology::Detect();
    cpus = here.CpusOf(here.PickCores(std::min(threads, here.cores().size())));
    found = topology::MeasureBandwidth(here, cpus, 0, budget_s);
  } else {
    for (const auto& thread : plan.threads) cpus.push_back(thread.cpu);
    std::sort(cpus.begin(), cpus.end());
    cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
    found = topology::MeasureBandwidth(machine, cpus, 0, budget_s);
  }
  return {found.l3_all_gbps / static_cast<double>(threads),
          found.dram_all_gbps / static_cast<double>(threads)};
}

double ResidentShare(double reread_gbps, const ResidencyBaseline& baseline) {
  if (reread_gbps <= 0 || baseline.dram_gbps <= 0) return 0;
  if (baseline.l3_gbps <= baseline.dram_gbps) return reread_gbps >= baseline.dram_gbps ? 1 : 0;
  const double share =
      (1 / baseline.dram_gbps - 1 / reread_gbps) / (1 / baseline.dram_gbps - 1 / baseline.l3_gbps);
  return std::clamp(share, 0.0, 1.0);
}

double Residency::reread_gbps() const {
  double sum = 0;
  for (const ShardResidency& shard : shards) sum += shard.reread_gbps;
  return sum;
}

uint64_t Residency::bytes() const {
  uint64_t sum = 0;
  for (const ShardResidency& shard : shards) sum += shard.bytes;
  return sum;
}

uint64_t Residency::resident_bytes() const {
  double sum = 0;
  for (const ShardResidency& shard : shards)
    sum += shard.resident_share * static_cast<double>(shard.bytes);
  return static_cast<uint64_t>(sum);
}

double Residency::resident_share() const {
  return bytes() > 0 ? static_cast<double>(resident_bytes()) / static_cast<double>(bytes()) : 0;
}

std::string Residency::Text() const {
  std::string out = fmt::format(
      "residency: {:.0f} % of the weights re-read at L3 speed (per thread: L3 {:.1f} GB/s, memory "
      "{:.1f} GB/s)\n",
      100 * resident_share(), baseline.l3_gbps, baseline.dram_gbps);
  out += "  thread   weights MB   re-read GB/s   resident\n";
  for (const ShardResidency& shard : shards) {
    out += fmt::format("  {:>6} {:>12.2f} {:>14.1f} {:>8.0f} %\n", shard.thread,
                       static_cast<double>(shard.bytes) * 1e-6, shard.reread_gbps,
                       100 * shard.resident_share);
  }
  return out;
}

}  // namespace larder::pipeline::residency
