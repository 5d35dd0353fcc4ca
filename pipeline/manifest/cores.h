// Sets of cores as a manifest writes them: "package:0", "l3:0-11", "numa:1", "cores:0-5,8",
// "cpus:0,2", "all". Numbers are lists of n and n-m.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace larder::pipeline::inline manifest {

struct CoreSet {
  enum class Kind { kAll, kPackage, kL3, kNuma, kCores, kCpus };
  Kind kind = Kind::kAll;
  std::vector<int> numbers;  // ascending, without duplicates; empty for kAll
};

// What a core set must look like, for messages.
inline constexpr const char* kCoreSetExpected =
    "\"all\", \"package:0\", \"l3:0-11\", \"numa:1\", \"cores:0-5,8\" or \"cpus:0,2\"";

// Returns nullopt if the text is not a core set; *problem then says what is wrong with it.
std::optional<CoreSet> ParseCoreSet(std::string_view text, std::string* problem);

}  // namespace larder::pipeline::manifest
