// The probes' results are only checked to be plausible: timings do not decide tests.
#include "topology/probe.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "topology/arena.h"
#include "topology/read_kernels.h"
#include "topology/this_machine_testing.h"

namespace larder::topology {
namespace {

// A kernel that skipped lines would report a bandwidth that does not exist. Fresh pages show which
// were read: each page is untouched before, and the kernel must have touched every one, for any
// size.
TEST(ReadKernels, ReadEveryPageOfTheRegion) {
  for (const ReadPattern& pattern : ReadPatterns()) {
    for (size_t pages : {1u, 2u, 7u, 64u, 129u}) {
      const size_t bytes = pages * kPageBytes;
      void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(map, MAP_FAILED);
      madvise(map, bytes, MADV_NOHUGEPAGE);
      // a written page is private; dropping it again leaves a page that only a new touch maps
      pattern.read(static_cast<const std::byte*>(map), bytes);
      std::vector<unsigned char> in_core(pages);
      ASSERT_EQ(mincore(map, bytes, in_core.data()), 0);
      for (size_t p = 0; p < pages; ++p)
        EXPECT_EQ(in_core[p] & 1, 1) << pattern.name << ": page " << p << " of " << pages;
      munmap(map, bytes);
    }
  }
}

// The region ends at the border of a page that may not be read: a load past its end is a crash.
TEST(ReadKernels, NeverLoadPastTheEnd) {
  char* map = static_cast<char*>(
      mmap(nullptr, 3 * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(map), MAP_FAILED);
  ASSERT_EQ(mprotect(map + 2 * kPageBytes, kPageBytes, PROT_NONE), 0);
  for (const ReadPattern& pattern : ReadPatterns()) {
    for (size_t lines = 0; lines <= 2 * kPageBytes / kCacheLineBytes; ++lines) {
      const size_t bytes = lines * kCacheLineBytes;
      pattern.read(reinterpret_cast<const std::byte*>(map + 2 * kPageBytes - bytes), bytes);
    }
  }
  munmap(map, 3 * kPageBytes);
}

TEST(ReadBandwidth, IsPositiveAndNamesItsPattern) {
  Arena arena(kHugePageBytes);
  std::memset(arena.data(), 1, arena.bytes());
  std::string pattern;
  EXPECT_GT(ReadBandwidthGbps({arena.data(), arena.bytes()}, 0.001, &pattern), 0);
  EXPECT_FALSE(pattern.empty());
  EXPECT_GT(ReadBandwidthGbps({arena.data(), 640}, 0.001), 0);
  EXPECT_EQ(ReadBandwidthGbps({arena.data(), size_t{0}}, 0.001), 0);
  EXPECT_EQ(ReadBandwidthGbps({arena.data(), 63}, 0.001), 0);
}

TEST(FlushFromCaches, KeepsTheBytes) {
  Arena arena(kHugePageBytes);
  std::memset(arena.data(), 0x77, arena.bytes());
  FlushFromCaches(arena.data(), arena.bytes());
  for (size_t i = 0; i < arena.bytes(); i += 1001) ASSERT_EQ(arena.data()[i], std::byte{0x77});
}

TEST(MeasureBandwidth, FillsInEveryFigure) {
  const Topology t = Topology::Detect();
  const std::vector<CoreId> cores = t.PickCores(std::min<size_t>(2, t.cores().size()));
  const MachineBandwidth b = MeasureBandwidth(t, t.CpusOf(cores), kHugePageBytes, 0.02);
  EXPECT_GT(b.l3_one_gbps, 0);
  EXPECT_GT(b.l3_all_gbps, 0);
  EXPECT_GT(b.dram_one_gbps, 0);
  EXPECT_GT(b.dram_all_gbps, 0);
  EXPECT_FALSE(b.l3_pattern.empty());
  EXPECT_FALSE(b.dram_pattern.empty());
  EXPECT_EQ(b.threads, cores.size());
  EXPECT_EQ(b.l3_bytes_used, kHugePageBytes);
  EXPECT_GE(b.dram_bytes_used, size_t{4} << 20);
}

TEST(MeasureBandwidth, NoCpusIsAnError) {
  EXPECT_THROW(MeasureBandwidth(Topology::Detect(), {}, 0, 0.01), Error);
}

TEST(HandOver, IsPositiveBetweenTwoCpusAndZeroWithinOne) {
  LARDER_NEEDS_THIS_MACHINE();
  const Topology t = Topology::Detect();
  const CpuId first = t.cores()[0].cpus[0];
  EXPECT_EQ(HandOverNs(first, first), 0);
  EXPECT_EQ(HandOverNs(first, CpuId{}), 0);
  if (t.cores().size() < 2) GTEST_SKIP() << "only one core is ours";
  EXPECT_GT(HandOverNs(first, t.cores()[1].cpus[0]), 0);
}

}  // namespace
}  // namespace larder::topology
