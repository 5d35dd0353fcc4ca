// What the machine's settings mean for Larder, for `larder doctor`: each a finding with what to do about it.
// Reads /proc and /sys only; changes nothing; whatever cannot be read is "unknown", never an error.
#pragma once

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

// /proc and /sys are taken from under `root`, which tests set.
std::vector<Finding> InspectHost(const Topology& topology, const std::string& root = "");

// "Intel(R) Xeon(R) Processor @ 2.50GHz, family 6 model 85 stepping 7": brand names hide the
// microarchitecture, the numbers do not. "unknown" where /proc does not say.
std::string CpuName(const std::string& root = "");

// The CPU numbers in a kernel list such as "0-3,8,10-11"; empty for anything that is not one.
std::vector<CpuId> ParseCpuList(const std::string& text);
// CPUs that the kernel keeps other work away from (isolcpus).
std::vector<CpuId> IsolatedCpus(const std::string& root = "");

}  // namespace larder::topology
