// Measures bandwidth and latency of the machine, so that reports can give ratios within one run.
// For set-up and diagnosis, not data path. Every figure is the best of several access patterns and
// repetitions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "topology/topology.h"

namespace larder::topology {

// Gigabytes (1e9 bytes) per second at which the calling thread reads the region, which it does
// repeatedly for about the budget; the best pass counts. The first pass does not, so a region that
// fits a cache is measured in that cache.
double ReadBandwidthGbps(std::span<const std::byte> region, double seconds_budget);
// The same with the name of the access pattern that was best ("4 streams, prefetch 512 B").
double ReadBandwidthGbps(std::span<const std::byte> region, double seconds_budget,
                         std::string* pattern);

struct MachineBandwidth {
  double l3_one_gbps = 0;  // one thread alone
  double l3_all_gbps = 0;  // sum over all threads reading at once, each its own buffer
  double dram_one_gbps = 0;
  double dram_all_gbps = 0;
  std::string l3_pattern;  // the best pattern with all threads reading
  std::string dram_pattern;
  size_t threads = 0;
  size_t l3_bytes_used = 0;    // per thread
  size_t dram_bytes_used = 0;  // per thread
  // What makes a figure doubtful: L3 shared with neighbours, buffer capped, not pinned.
  std::vector<std::string> notes;
};

// Starts one pinned thread per CPU. l3_bytes_per_thread: buffer of the L3 probe; 0 lets the probe
// choose (well above L2, well below the thread's share of L3). The DRAM probe's buffers exceed the
// L3, or are flushed from it before each pass.
MachineBandwidth MeasureBandwidth(const Topology& topology, std::span<const CpuId> cpus,
                                  size_t l3_bytes_per_thread, double budget_s);

// Nanoseconds from a store on one CPU until the other CPU sees it: half a ping-pong round trip, the
// median of many. 0 if the two CPUs are the same or the threads could not be pinned.
double HandOverNs(CpuId from, CpuId to);

// The instruction set that the read kernels use here: "avx512f", "avx2" or "baseline".
std::string_view ReadKernelIsa();

}  // namespace larder::topology
