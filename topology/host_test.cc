#include "topology/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "topology/sysfs.h"

namespace larder::topology {
namespace {

std::vector<int> Numbers(const std::string& list) {
  std::vector<int> numbers;
  for (CpuId cpu : ParseCpuList(list)) numbers.push_back(cpu.value);
  return numbers;
}

TEST(ParseCpuList, ReadsTheKernelsForm) {
  EXPECT_EQ(Numbers("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(Numbers("5"), (std::vector<int>{5}));
  EXPECT_EQ(Numbers("2-3\n"), (std::vector<int>{2, 3}));
}

TEST(ParseCpuList, AnythingElseIsNoList) {
  for (const char* text :
       {"", "\n", "none", "3-1", "-4", "1-", "1,x", "1 2", "0-99999999", "1--2"}) {
    EXPECT_TRUE(ParseCpuList(text).empty()) << "'" << text << "'";
  }
}

TEST(Sysfs, FindsFiguresInMeminfo) {
  const std::string text =
      "MemTotal:  100 kB\nNode 0 MemFree:   7 kB\nSwapTotal:       0 kB\nfile 4096\nBad: x kB\n";
  EXPECT_EQ(FindBytes(text, "MemTotal"), 102400u);
  EXPECT_EQ(FindBytes(text, "MemFree"), 7168u);
  EXPECT_EQ(FindBytes(text, "SwapTotal"), 0u);
  EXPECT_EQ(FindBytes(text, "file"), 4096u);
  EXPECT_FALSE(FindBytes(text, "Bad"));
  EXPECT_FALSE(FindBytes(text, "Absent"));
}

TEST(Sysfs, PicksTheBracketedChoice) {
  EXPECT_EQ(BracketedChoice("always [madvise] never"), "madvise");
  EXPECT_EQ(BracketedChoice("performance"), "performance");
  EXPECT_EQ(BracketedChoice("]["), "][");
}

// A machine's /proc and /sys made of files.
class FakeHost : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/larder-host-" + std::to_string(getpid());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  Finding Find(const std::string& what) {
    for (const Finding& finding : InspectHost(topology_, root_)) {
      if (finding.what == what) return finding;
    }
    ADD_FAILURE() << "no finding " << what;
    return {};
  }
  std::string root_;
  const Topology topology_ = Topology::Detect();
};

TEST_F(FakeHost, WithoutFilesNothingIsBad) {
  for (const Finding& finding : InspectHost(topology_, root_)) {
    EXPECT_FALSE(finding.what.empty());
    EXPECT_FALSE(finding.value.empty()) << finding.what;
    if (finding.what == "locked memory limit") continue;  // comes from the process, not from a file
    EXPECT_NE(finding.verdict, Verdict::kBad) << finding.what;
  }
}

TEST_F(FakeHost, SettingsAreJudged) {
  Write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  Write("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "512");
  for (const Core& core : topology_.cores()) {
    Write("/sys/devices/system/cpu/cpu" + std::to_string(core.cpus[0].value) +
              "/cpufreq/scaling_governor",
          "powersave");
  }
  Write("/sys/devices/system/cpu/isolated", "2-3");
  Write("/proc/meminfo", "SwapTotal: 2097152 kB");
  Write("/proc/cpuinfo",
        "processor : 0\nmodel name\t: Test CPU 9000\nflags\t\t: fpu hypervisor avx2");
  Write("/proc/loadavg", "9999.5 1 1 1/2 3");

  const Finding thp = Find("transparent huge pages");
  EXPECT_EQ(thp.value, "never");
  EXPECT_EQ(thp.verdict, Verdict::kBad);
  EXPECT_FALSE(thp.advice.empty());
  EXPECT_EQ(Find("free reserved 2 MB pages").value, "512 (1024 MB)");
  EXPECT_EQ(Find("frequency governor").verdict, Verdict::kBad);
  EXPECT_EQ(Find("isolated CPUs").value, "2-3");
  EXPECT_EQ(IsolatedCpus(root_).size(), 2u);
  EXPECT_EQ(Find("swap").value, "2048 MB");
  EXPECT_EQ(Find("swap").verdict, Verdict::kBad);
  EXPECT_EQ(Find("CPU").value, "Test CPU 9000");
  Write(
      "/proc/cpuinfo",
      "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Test CPU 9000\nstepping\t: 1\n"
      "flags\t\t: fpu hypervisor avx2");
  EXPECT_EQ(Find("CPU").value, "Test CPU 9000, family 26 model 2 stepping 1");
  EXPECT_EQ(Find("virtualisation").value, "virtual machine");
  EXPECT_EQ(Find("load").verdict, Verdict::kBad);

  Write("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
  EXPECT_EQ(Find("transparent huge pages").verdict, Verdict::kGood);
  Write("/proc/loadavg", "0.01 1 1 1/2 3");
  EXPECT_EQ(Find("load").verdict, Verdict::kGood);
}

TEST_F(FakeHost, ANodeIsShortOfMemory) {
  const std::map<NumaNodeId, uint64_t> needed = {{NumaNodeId(0), 3'000'000'000},
                                                 {NumaNodeId(1), 3'000'000'000}};
  EXPECT_TRUE(InspectNodes(needed, root_).empty()) << "nothing is known";
  const std::string nodes = "/sys/devices/system/node/";
  Write(nodes + "online", "0-1");
  Write(nodes + "node0/meminfo",
        "Node 0 MemFree: 2000000 kB\nNode 0 FilePages: 1500000 kB\nNode 0 Shmem: 100000 kB");
  Write(nodes + "node1/meminfo",
        "Node 1 MemFree: 2000000 kB\nNode 1 FilePages: 1500000 kB\nNode 1 Shmem: 900000 kB");
  const std::vector<Finding> found = InspectNodes(needed, root_);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].verdict, Verdict::kGood);
  EXPECT_EQ(found[1].what, "memory of NUMA node 1");
  EXPECT_EQ(found[1].value, "2.66 GB available for 3.00 GB of its threads' weights and KV");
  EXPECT_EQ(found[1].verdict, Verdict::kBad);
  EXPECT_FALSE(found[1].advice.empty());
  Write(nodes + "online", "0");
  EXPECT_TRUE(InspectNodes(needed, root_).empty()) << "a machine of one node";
}

TEST_F(FakeHost, AMemoryCgroupLimitsWhatIsAvailable) {
  Write("/proc/meminfo", "MemAvailable: 1000000 kB");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1024000000u);
  Write("/proc/self/cgroup", "0::/box");
  Write("/sys/fs/cgroup/box/memory.max", "max");
  Write("/sys/fs/cgroup/box/memory.current", "60000");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1024000000u);
  Write("/sys/fs/cgroup/box/memory.max", "100000");
  Write("/sys/fs/cgroup/box/memory.stat", "anon 40000\nfile 20000");
  EXPECT_EQ(AvailableMemoryBytes(root_), 60000u);
}

TEST_F(FakeHost, ALimitOfAGroupAboveHoldsToo) {
  Write("/proc/meminfo", "MemAvailable: 1000000 kB");
  Write("/proc/self/cgroup", "0::/machine.slice/box/inner");
  Write("/sys/fs/cgroup/machine.slice/box/inner/memory.max", "max");
  Write("/sys/fs/cgroup/machine.slice/box/inner/memory.current", "10000");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1024000000u);
  Write("/sys/fs/cgroup/machine.slice/memory.max", "50000");
  Write("/sys/fs/cgroup/machine.slice/memory.current", "30000");
  EXPECT_EQ(AvailableMemoryBytes(root_), 20000u);
  Write("/sys/fs/cgroup/machine.slice/box/memory.max", "25000");
  Write("/sys/fs/cgroup/machine.slice/box/memory.current", "10000");
  EXPECT_EQ(AvailableMemoryBytes(root_), 15000u) << "the least of them";
}

}  // namespace
}  // namespace larder::topology
