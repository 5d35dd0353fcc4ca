// What the machine's settings mean for Larder, for `larder doctor`. Each setting is a finding with
// advice. The functions only read /proc and /sys; a setting that cannot be read is "unknown", never
// an error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topology/topology.h"

namespace larder::topology {

enum class Verdict { kGood, kBad, kUnknown };
const char* VerdictName(Verdict verdict);

struct Finding {
  std::string what;   // "transparent huge pages"
  std::string value;  // "madvise"
  Verdict verdict = Verdict::kUnknown;
  std::string advice;  // what to do; empty if nothing
};

// Reads /proc and /sys below `root`, which only tests set.
std::vector<Finding> InspectHost(const Topology& topology, const std::string& root = "");

// A finding for each node: whether it has room for what is to lie on it, in bytes. None on a
// machine of one node.
std::vector<Finding> InspectNodes(const std::map<NumaNodeId, uint64_t>& bytes,
                                  const std::string& root = "");

// "Intel(R) Xeon(R) Processor @ 2.50GHz, family 6 model 85 stepping 7". The numbers are there
// because brand names hide the microarchitecture. "unknown" if /proc does not say.
std::string CpuName(const std::string& root = "");

// The CPU numbers in a kernel list such as "0-3,8,10-11"; empty if `text` is not such a list.
std::vector<CpuId> ParseCpuList(const std::string& text);
// CPUs on which the kernel schedules no other work (isolcpus).
std::vector<CpuId> IsolatedCpus(const std::string& root = "");

}  // namespace larder::topology
