// Sets of cores as a manifest writes them: "package:0", "l3:0-11", "numa:1", "cores:0-5,8", "cpus:0,2",
// "all". Numbers are lists of n and n-m. Used by the manifest's files only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "topology/topology.h"

namespace larder::pipeline {

struct CoreSet {
  enum class Kind { kAll, kPackage, kL3, kNuma, kCores, kCpus };
  Kind kind = Kind::kAll;
  std::vector<int> numbers;  // ascending, none twice; empty for kAll
};

// What a core set must look like, for messages.
inline constexpr const char* kCoreSetExpected =
    "\"all\", \"package:0\", \"l3:0-11\", \"numa:1\", \"cores:0-5,8\" or \"cpus:0,2\"";

// Nothing if the text is no core set; then *problem says what is wrong with it.
std::optional<CoreSet> ParseCoreSet(std::string_view text, std::string* problem);

struct PickedCores {
  std::vector<CoreId> cores;  // sorted by L3 group, then number
  std::vector<CpuId>
      cpus;  // with smt all siblings of each core, else its first, or the one that "cpus:" names
};

// Nothing if the machine lacks some of it or the set is empty; then *problem says what, and what there is.
std::optional<PickedCores> PickCoreSet(const CoreSet& set, bool smt, const topology::Topology& topology,
                                       std::string* problem);

}  // namespace larder::pipeline
