// Test support: the shapes of real machines, so that tests about them need no file. Each has
// hwloc's synthetic description, and the name of its dump in the folder of test data
// (LARDER_TEST_DATA, by default
// ../shared/data beside the repository); where the dump is present it is tested against the same
// expectations. Included by tests only.
#pragma once

#include <algorithm>
#include <cctype>
#include <iterator>
#include <ostream>
#include <set>
#include <string>

#include "base/test_data_testing.h"
#include "topology/topology.h"

namespace larder::topology {

struct KnownMachine {
  const char* name;  // the name of its dump, without .xml
  const char* description;
  std::set<int> hidden = {};  // CPUs
};

inline const KnownMachine kKnownMachines[] = {
    // A virtual machine: the host keeps four cores of one L3 group in each node for itself.
    {"amd-genoax-2xEPYC-9V33X-azure-hbv4",
     "package:2 numa:2(memory=192GiB) l3:6(size=96MiB) l2:8(size=1MiB) core:1 pu:1",
     {0, 1, 2, 3, 48, 49, 50, 51, 96, 97, 98, 99, 144, 145, 146, 147}},
    {"amd-naples-1xEPYC-7451",
     "package:1 numa:4(memory=16GiB) l3:2(size=8MiB) l2:3(size=512kiB) core:1 pu:2"},
    // Made by a program that does not know the nodes' memory.
    {"amd-naples-2xEPYC-7451-from-util-linux",
     "package:2 group:4 [numa(memory=0)] l3:2(size=8MiB) l2:3(size=512kiB) core:1 pu:2"},
    {"amd-rome-2xEPYC-7742-nps4-jusuf-jsfc070",
     "package:2 numa:4(memory=32GiB) l3:4(size=16MiB) l2:4(size=512kiB) core:1 pu:2"},
    {"amd-rome-2xEPYC-7H12-nps1-mel4001",
     "package:2 [numa(memory=128GiB)] l3:16(size=16MiB) l2:4(size=512kiB) core:1 pu:2"},
    {"amd-rome-2xEPYC-7H12-nps4-mel0001",
     "package:2 numa:4(memory=32GiB) l3:4(size=16MiB) l2:4(size=512kiB) core:1 pu:2"},
    {"arm-kunpeng920-2x64",
     "package:2 numa:2(memory=32GiB) l3:1(size=32MiB) l2:32(size=512kiB) core:1 pu:1"},
    {"arm-nvidia-gh200", "package:1 [numa(memory=480GiB)] l2:72(size=1MiB) core:1 pu:1"},
    {"arm-thunderx2-2x32core-smt4-hwloc1",
     "package:2 [numa(memory=128GiB)] l3:1(size=32MiB) l2:32(size=256kiB) core:1 pu:4"},
    // From cpuid alone: one node, whose memory is not known.
    {"cpuid-AMD-19h-Zen3-2xEpyc-7763",
     "[numa(memory=0)] package:2 l3:8(size=32MiB) l2:8(size=512kiB) core:1 pu:1"},
    {"intel-broadwell-2xXeon-E5-2695v4",
     "package:2 [numa(memory=64GiB)] l3:1(size=45MiB) l2:18(size=256kiB) core:1 pu:2"},
    // Two nodes below one L3, numbered across the packages.
    {"intel-cascadelake-2xXeon6230-optane-memorysidecache",
     "package:2 l3:1(size=28160kiB) numa:2(memory=96GiB indexes=0,2,1,3) l2:10(size=1MiB) core:1 "
     "pu:2"},
};

inline Topology ByDescription(const std::string& name) {
  const auto* known =
      std::find_if(std::begin(kKnownMachines), std::end(kKnownMachines),
                   [&](const KnownMachine& machine) { return machine.name == name; });
  return Topology::FromSynthetic(
      known == std::end(kKnownMachines) ? name : known->description,
      known == std::end(kKnownMachines) ? std::set<int>{} : known->hidden);
}

inline std::string DumpFolder() { return TestData("topologies"); }
inline std::string DumpOf(const std::string& name) {
  return TestData("topologies/" + name + ".xml");
}

// The name in a form that can be a part of a test's name.
inline std::string TestName(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace larder::topology
