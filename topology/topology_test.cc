#include "topology/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <set>
#include <string>

#include "base/error.h"
#include "base/temporary_folder_testing.h"
#include "topology/machines_testing.h"
#include "topology/sysfs.h"
#include "topology/this_machine_testing.h"

namespace larder::topology {
namespace {

// Invariants of every snapshot: ids are indices, the lists agree with each other, no CPU is in two
// cores.
void ExpectConsistent(const Topology& t) {
  ASSERT_FALSE(t.cores().empty());
  std::set<int> cpus;
  size_t in_groups = 0, in_packages = 0, in_nodes = 0;
  for (size_t i = 0; i < t.cores().size(); ++i) {
    const Core& core = t.cores()[i];
    EXPECT_EQ(core.id, CoreId(static_cast<int32_t>(i)));
    EXPECT_FALSE(core.cpus.empty());
    for (CpuId cpu : core.cpus)
      EXPECT_TRUE(cpus.insert(cpu.value).second) << "CPU " << cpu.value << " is in two cores";
    EXPECT_EQ(t.l3_group(core.l3_group).package, core.package);
    EXPECT_TRUE(std::any_of(t.numa_nodes().begin(), t.numa_nodes().end(),
                            [&](const NumaNode& node) { return node.id == core.numa_node; }));
  }
  for (const L3Group& group : t.l3_groups()) {
    EXPECT_FALSE(group.cores.empty());
    for (CoreId id : group.cores) EXPECT_EQ(t.core(id).l3_group, group.id);
    in_groups += group.cores.size();
  }
  for (const Package& package : t.packages()) in_packages += package.cores.size();
  for (const NumaNode& node : t.numa_nodes()) in_nodes += node.cores.size();
  EXPECT_EQ(in_groups, t.cores().size());
  EXPECT_EQ(in_packages, t.cores().size());
  EXPECT_EQ(in_nodes, t.cores().size());
  EXPECT_EQ(cpus.size(), t.cpu_count());
}

struct Expected {
  const char* machine;
  size_t packages, l3_groups, cores, cpus, nodes;
  size_t l3_kb;                 // of each group
  size_t min_cores, max_cores;  // of a group
  size_t warnings;
};
void PrintTo(const Expected& e, std::ostream* out) { *out << e.machine; }

constexpr Expected kExpected[] = {
    {"amd-genoax-2xEPYC-9V33X-azure-hbv4", 2, 24, 176, 176, 4, 96 << 10, 4, 8, 0},
    {"amd-naples-1xEPYC-7451", 1, 8, 24, 48, 4, 8 << 10, 3, 3, 0},
    {"amd-naples-2xEPYC-7451-from-util-linux", 2, 16, 48, 96, 8, 8 << 10, 3, 3, 8},
    {"amd-rome-2xEPYC-7742-nps4-jusuf-jsfc070", 2, 32, 128, 256, 8, 16 << 10, 4, 4, 0},
    {"amd-rome-2xEPYC-7H12-nps1-mel4001", 2, 32, 128, 256, 2, 16 << 10, 4, 4, 0},
    {"amd-rome-2xEPYC-7H12-nps4-mel0001", 2, 32, 128, 256, 8, 16 << 10, 4, 4, 0},
    {"arm-kunpeng920-2x64", 2, 4, 128, 128, 4, 32 << 10, 32, 32, 0},
    {"arm-nvidia-gh200", 1, 1, 72, 72, 1, 0, 72, 72, 1},
    {"arm-thunderx2-2x32core-smt4-hwloc1", 2, 2, 64, 256, 2, 32 << 10, 32, 32, 0},
    {"cpuid-AMD-19h-Zen3-2xEpyc-7763", 2, 16, 128, 128, 1, 32 << 10, 8, 8, 2},
    {"intel-broadwell-2xXeon-E5-2695v4", 2, 2, 36, 72, 2, 45 << 10, 18, 18, 0},
    {"intel-cascadelake-2xXeon6230-optane-memorysidecache", 2, 2, 40, 80, 4, 28160, 20, 20, 0},
};

void ExpectCounts(const Topology& t, const Expected& e) {
  ExpectConsistent(t);
  EXPECT_TRUE(t.from_xml());
  EXPECT_EQ(t.packages().size(), e.packages);
  EXPECT_EQ(t.l3_groups().size(), e.l3_groups);
  EXPECT_EQ(t.cores().size(), e.cores);
  EXPECT_EQ(t.cpu_count(), e.cpus);
  EXPECT_EQ(t.numa_nodes().size(), e.nodes);
  size_t least = SIZE_MAX, most = 0;
  for (const L3Group& group : t.l3_groups()) {
    EXPECT_EQ(group.bytes, e.l3_kb * 1024) << "group " << group.id.value;
    least = std::min(least, group.cores.size());
    most = std::max(most, group.cores.size());
  }
  EXPECT_EQ(least, e.min_cores);
  EXPECT_EQ(most, e.max_cores);
  EXPECT_EQ(t.warnings().size(), e.warnings) << t.Describe();
  EXPECT_NE(t.Describe().find("package 0"), std::string::npos);
}

void ExpectEvenPicks(const Topology& t) {
  const size_t of_first = t.packages()[0].cores.size();
  for (size_t n : {size_t{1}, size_t{2}, t.packages()[0].l3_groups.size(), of_first / 2, of_first,
                   t.cores().size()}) {
    const std::vector<CoreId> picked = t.PickCores(n);
    ASSERT_EQ(picked.size(), n);
    EXPECT_EQ(std::set<CoreId>(picked.begin(), picked.end()).size(), n) << "a core twice";
    std::vector<size_t> of_group(t.l3_groups().size(), 0);
    for (CoreId id : picked) {
      ++of_group[t.core(id).l3_group.index()];
      if (n <= of_first) {
        EXPECT_EQ(t.core(id).package, 0) << n << " cores fit the first package";
      }
    }
    // even: a group has fewer than another's less one only if it has no more cores
    for (size_t a = 0; a < of_group.size(); ++a) {
      for (size_t b = 0; b < of_group.size(); ++b) {
        if (of_group[a] == 0 || of_group[a] + 1 >= of_group[b]) continue;
        EXPECT_EQ(of_group[a], t.l3_groups()[a].cores.size())
            << n << " cores: group " << a << " against " << b;
      }
    }
    const std::vector<int> groups = t.GroupsOf(picked);
    EXPECT_EQ(groups.front(), 0);
    EXPECT_TRUE(std::is_sorted(groups.begin(), groups.end()));
    const std::vector<CpuId> cpus = t.CpusOf(picked);
    EXPECT_EQ(std::set<CpuId>(cpus.begin(), cpus.end()).size(), n);
  }
  // more than there are: all of them, then again from the start
  const std::vector<CoreId> over = t.PickCores(t.cores().size() + 3);
  EXPECT_EQ(over.size(), t.cores().size() + 3);
  EXPECT_EQ(std::set<CoreId>(over.begin(), over.end()).size(), t.cores().size());
}

class KnownMachineTest : public testing::TestWithParam<Expected> {};

TEST_P(KnownMachineTest, HasItsCounts) {
  ExpectCounts(ByDescription(GetParam().machine), GetParam());
}

TEST_P(KnownMachineTest, PicksCoresEvenly) { ExpectEvenPicks(ByDescription(GetParam().machine)); }

INSTANTIATE_TEST_SUITE_P(Described, KnownMachineTest, testing::ValuesIn(kExpected),
                         [](const auto& machine) { return TestName(machine.param.machine); });

TEST(RealMachines, HaveTheSameCountsAndPickCoresEvenly) {
  LARDER_NEEDS_TEST_DATA(DumpFolder());
  for (const Expected& expected : kExpected) {
    SCOPED_TRACE(expected.machine);
    const Topology t = Topology::FromXml(DumpOf(expected.machine));
    ExpectCounts(t, expected);
    ExpectEvenPicks(t);
  }
}

TEST(Synthetic, WhatHwlocDoesNotUnderstandIsRefused) {
  for (const char* description : {"", "l9:7", "package:2 pu:"}) {
    EXPECT_THROW(Topology::FromSynthetic(description), Error) << description;
  }
  EXPECT_THROW(Topology::FromSynthetic("core:1 pu:2", {0, 1}), Error) << "all hidden";
}

// The error's one line, or "" if there was none.
std::string ErrorOf(const std::string& path) {
  try {
    Topology::FromXml(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class BadXml : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/bad-topology-" + std::to_string(getpid()) + ".xml";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(BadXml, AMissingFileIsNamed) {
  const std::string text = ErrorOf("/nowhere/machine.xml");
  EXPECT_NE(text.find("/nowhere/machine.xml: No such file"), std::string::npos) << text;
}

TEST_F(BadXml, WhatIsNotATopologyIsRefused) {
  for (const char* content : {"", "hello", "<?xml version=\"1.0\"?>", "<topology version=\"2.0\">",
                              "<?xml version=\"1.0\"?><topology version=\"2.0\"></topology>"}) {
    std::ofstream(path_, std::ios::trunc) << content;
    const std::string text = ErrorOf(path_);
    EXPECT_NE(text.find("lstopo FILE.xml"), std::string::npos)
        << "'" << content << "' gave '" << text << "'";
  }
}

TEST_F(BadXml, ATruncatedDumpIsRefused) {
  std::ifstream in(LARDER_SOURCE_DIR "/pipeline/manifest/testdata/two-packages.xml");
  std::string text(5000, ' ');
  ASSERT_TRUE(in.read(text.data(), static_cast<std::streamsize>(text.size())));
  std::ofstream(path_) << text;
  EXPECT_NE(ErrorOf(path_).find(path_), std::string::npos);
}

TEST(Detect, DescribesThisMachine) {
  LARDER_NEEDS_THIS_MACHINE();
  const Topology t = Topology::Detect();
  ExpectConsistent(t);
  EXPECT_FALSE(t.from_xml());
  size_t memory_bytes = 0;  // a node may have none, the first one too
  for (const NumaNode& node : t.numa_nodes()) memory_bytes += node.memory_bytes;
  EXPECT_GT(memory_bytes, 0u);
}

// hwloc 2.9 aborts where the folder of nodes is there and empty, as in some containers.
TEST(Detect, WithoutANodeInSysOneIsAssumed) {
  LARDER_NEEDS_THIS_MACHINE();
  const pid_t child = fork();
  if (child == 0) {
    constexpr int kMayNot = 77;
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/sys/devices/system/node", "tmpfs", 0, nullptr) != 0)
      _exit(kMayNot);
    try {
      const Topology t = Topology::Detect();
      const bool good = t.numa_nodes().size() == 1 && !t.cores().empty() && !t.warnings().empty() &&
                        t.warnings()[0].find("shows no NUMA node") != std::string::npos;
      _exit(good ? 0 : 1);
    } catch (...) {
      _exit(2);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "may not mount";
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Sysfs, AFolderOfNodesMayBeEmpty) {
  const TemporaryFolder folder;
  EXPECT_TRUE(ShowsNoNode(folder.path()));
  std::ofstream(folder.path() + "/has_cpu") << "0\n";
  EXPECT_TRUE(ShowsNoNode(folder.path()));
  std::filesystem::create_directory(folder.path() + "/node12");
  EXPECT_FALSE(ShowsNoNode(folder.path()));
  EXPECT_FALSE(ShowsNoNode(folder.path() + "/none"));
}

TEST(Detect, ShowsOnlyTheCpusOfTheAffinityMask) {
  LARDER_NEEDS_THIS_MACHINE();
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "only one CPU is ours; nothing to leave out";
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &before)) --last;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) GTEST_SKIP() << "affinity may not be set here";
  const Topology t = Topology::Detect();
  const Topology all = Topology::Detect(Topology::Scope::kAll);
  sched_setaffinity(0, sizeof(before), &before);
  ExpectConsistent(t);
  ASSERT_EQ(t.cpu_count(), 1u);
  EXPECT_EQ(t.cores()[0].cpus[0], CpuId(last));
  ExpectConsistent(all);
  EXPECT_GE(all.cpu_count(), static_cast<size_t>(CPU_COUNT(&before)))
      << "the CPUs it is confined to do not count";
}

}  // namespace
}  // namespace larder::topology
