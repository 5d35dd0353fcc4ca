#include "topology/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "topology/scattered_bytes.h"

namespace larder::topology {
namespace {

size_t ResidentPages(const Arena& arena) {
  std::vector<unsigned char> in_core(arena.bytes() / kPageBytes);
  EXPECT_EQ(mincore(arena.data(), arena.bytes(), in_core.data()), 0);
  size_t pages = 0;
  for (unsigned char page : in_core) pages += page & 1;
  return pages;
}

TEST(Arena, IsWholeHugePagesOnAHugePageBorder) {
  Arena arena(3'000'000);
  EXPECT_EQ(arena.bytes(), 2 * kHugePageBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % kHugePageBytes, 0u);
  std::memset(arena.data(), 0x5a, arena.bytes());  // all of it can be written
  EXPECT_EQ(arena.data()[arena.bytes() - 1], std::byte{0x5a});
}

TEST(Arena, IsNotTouchedByItsCreation) {
  Arena arena(64 << 20);
  if (arena.backing() == Backing::kHugeTlb)
    GTEST_SKIP() << "mincore says nothing about reserved pages";
  EXPECT_EQ(ResidentPages(arena), 0u);
  arena.data()[10 << 20] = std::byte{1};
  EXPECT_GE(ResidentPages(arena), 1u);
  EXPECT_LE(ResidentPages(arena), kHugePageBytes / kPageBytes);
}

TEST(Arena, AllocatesAlignedAndDisjointUntilItIsFull) {
  Arena arena(kHugePageBytes);
  std::byte* a = arena.Allocate(100, 1);
  std::byte* b = arena.Allocate(1);
  std::byte* c = arena.Allocate(10, 4096);
  EXPECT_EQ(a, arena.data());
  EXPECT_EQ(b, arena.data() + 128);
  EXPECT_EQ(c, arena.data() + 4096);
  EXPECT_EQ(arena.used_bytes(), 4106u);
  std::span<uint32_t> rest = arena.AllocateArray<uint32_t>((kHugePageBytes - 4160) / 4);
  EXPECT_EQ(reinterpret_cast<std::byte*>(rest.data() + rest.size()), arena.data() + arena.bytes());
  EXPECT_EQ(rest[0], 0u);
  EXPECT_EQ(rest.back(), 0u);
  EXPECT_THROW(arena.Allocate(1), Error);
}

TEST(Arena, SizesThatOverflowAreErrors) {
  Arena arena(kHugePageBytes);
  EXPECT_THROW(arena.Allocate(SIZE_MAX), Error);
  EXPECT_THROW(arena.AllocateArray<uint64_t>(SIZE_MAX / 4), Error);
  EXPECT_EQ(arena.used_bytes(), 0u);
  EXPECT_THROW(Arena(SIZE_MAX), Error);
}

TEST(Arena, MoreThanTheMachineHasIsAnErrorWithNumbers) {
  try {
    Arena arena(size_t{1} << 46);
    FAIL() << "64 TB were mapped: " << arena.Describe();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("67108864 MB needed"), std::string::npos) << text;
    EXPECT_NE(text.find("available"), std::string::npos) << text;
  }
}

TEST(Arena, MovesWithItsMemory) {
  Arena a(kHugePageBytes);
  std::byte* data = a.Allocate(64);
  *data = std::byte{7};
  Arena b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.bytes(), 0u);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.used_bytes(), 64u);
  Arena c(kHugePageBytes);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(*c.data(), std::byte{7});
  EXPECT_EQ(b.Describe(), "no memory");
}

TEST(Arena, SaysWhatItIs) {
  Arena arena(kHugePageBytes, NumaNodeId(0));
  EXPECT_NE(arena.Describe().find("2 MB"), std::string::npos);
  EXPECT_NE(arena.Describe().find(BackingName(arena.backing())), std::string::npos);
  // bound, or a note says why not
  EXPECT_TRUE(arena.bound() || arena.notes().find("not bound to node 0") != std::string::npos)
      << arena.notes();
  if (arena.backing() == Backing::kPlain) {
    EXPECT_NE(arena.notes().find("transparent huge pages"), std::string::npos) << arena.notes();
  }
}

TEST(Arena, ANodeThatIsNotThereIsANoteNotAnError) {
  Arena arena(kHugePageBytes, NumaNodeId(1000));
  EXPECT_FALSE(arena.bound());
  EXPECT_NE(arena.notes().find("not bound to node 1000"), std::string::npos) << arena.notes();
  std::memset(arena.data(), 1, arena.bytes());
}

// A mapping of more reserved pages than there are, which the kernel has not promised
// (MAP_NORESERVE).
TEST(TouchAllTest, AShortageIsAnAnswerAndNoSignal) {
  const size_t bytes = FreeReservedBytes({}) + 2 * kHugePageBytes;
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_HUGETLB | (21 << 26), -1, 0);
  if (map == MAP_FAILED) GTEST_SKIP() << "no 2 MB pages in this kernel: " << std::strerror(errno);
  alignas(kPageBytes) static char page[kPageBytes];
  if (madvise(page, kPageBytes, 23) != 0) GTEST_SKIP() << "a kernel before 5.14";
  EXPECT_FALSE(TouchAll(map, bytes));
  munmap(map, bytes);
}

TEST(TouchAllTest, MemoryThatIsThereIsTouched) {
  const size_t bytes = 3 * kPageBytes;
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_TRUE(TouchAll(map, bytes));
  munmap(map, bytes);
}

// Nodes that this machine may not have: their arenas say so in notes and are anywhere.
TEST(NodeArenas, EachPartIsOnItsNodeAndOnLinesOfItsOwn) {
  std::vector<std::byte*> at(6);
  const NodeArenas arenas([&](auto&& take) {
    for (size_t i = 0; i < at.size(); ++i)
      at[i] = take(NumaNodeId(i % 2 == 0 ? 0 : 5), 100 * i + 1);
  });
  EXPECT_EQ(arenas.nodes(), (std::vector<NumaNodeId>{NumaNodeId(0), NumaNodeId(5)}));
  EXPECT_EQ(arenas.bytes(), 2 * kHugePageBytes);
  for (size_t i = 0; i < at.size(); ++i) {
    EXPECT_EQ(arenas.NodeOf(at[i]), NumaNodeId(i % 2 == 0 ? 0 : 5));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(at[i]) % kFalseSharingBytes, 0u);
    for (size_t other = 0; other < i; ++other)
      EXPECT_TRUE(at[i] + 100 * i < at[other] || at[other] + 100 * other < at[i]);
    std::fill_n(at[i], 100 * i + 1, std::byte{1});
  }
  EXPECT_EQ(NodeArenas().bytes(), 0u);
  EXPECT_TRUE(NodeArenas([](auto&&) {}).nodes().empty());
}

TEST(ScatteredBytes, AreReadAndWrittenInTheirOrder) {
  std::vector<uint8_t> memory = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::span all(memory);
  ScatteredBytes bytes(all.subspan(6, 3));
  bytes.Add(all.subspan(1, 2));
  bytes.Add(all.subspan(3, 1));  // goes on where the last piece ends
  bytes.Add({});
  EXPECT_EQ(bytes.size(), 6u);
  EXPECT_EQ(bytes.pieces().size(), 2u);
  EXPECT_EQ(bytes.Read(), (std::vector<uint8_t>{6, 7, 8, 1, 2, 3}));
  std::vector<std::vector<uint8_t>> pieces;
  bytes.ForEach(2,
                [&](std::span<uint8_t> piece) { pieces.emplace_back(piece.begin(), piece.end()); });
  EXPECT_EQ(pieces, (std::vector<std::vector<uint8_t>>{{6, 7}, {8}, {1, 2}, {3}}));
  bytes.Write(std::vector<uint8_t>{16, 17, 18, 11, 12, 13});
  EXPECT_EQ(memory, (std::vector<uint8_t>{0, 11, 12, 13, 4, 5, 16, 17, 18, 9}));
  EXPECT_TRUE(ScatteredBytes().empty());
}

}  // namespace
}  // namespace larder::topology
