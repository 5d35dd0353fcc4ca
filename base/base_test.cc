// Ids, ranges, the hash, the arithmetic of memory.h, and the pulse of a loop.
#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>

#include "base/fnv.h"
#include "base/ids.h"
#include "base/memory.h"
#include "base/pulse.h"
#include "base/range.h"

namespace larder {
namespace {

TEST(Ids, KindsDoNotMix) {
  static_assert(!std::is_convertible_v<CoreId, CpuId> && !std::is_constructible_v<CoreId, CpuId>);
  static_assert(!std::is_convertible_v<int, CoreId> && std::is_trivially_copyable_v<CoreId>);
  EXPECT_FALSE(CoreId().valid());
  EXPECT_TRUE(CoreId(0).valid());
  EXPECT_LT(CoreId(3), CoreId(4));
  EXPECT_EQ(CoreId(3), CoreId(3));
}

TEST(Ids, AnInvalidIndexIsBeyondAnyArray) {
  EXPECT_EQ(CoreId(3).index(), 3u);
  static_assert(CoreId().index() > PTRDIFF_MAX && CoreId(INT32_MIN).index() > PTRDIFF_MAX);
}

TEST(Ids, CountUp) {
  size_t seen = 0;
  for (CoreId core(0); core.index() < 3; ++core) EXPECT_EQ(core.index(), seen++);
  EXPECT_EQ(seen, 3u);
}

TEST(Range, IsHalfOpen) {
  constexpr Range<int> range{3, 5};
  static_assert(range.count() == 2 && range.contains(3) && range.contains(4));
  static_assert(!range.contains(2) && !range.contains(5));
  static_assert(Range<size_t>().count() == 0 && !Range<size_t>().contains(0));
}

// The values are from the FNV's authors (draft-eastlake-fnv, 64-bit FNV-1a).
TEST(Fnv1a, IsThePublishedHash) {
  EXPECT_EQ(Fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Fnv1a("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(Fnv1a("bar", Fnv1a("foo")), Fnv1a("foobar")) << "it goes on";
  EXPECT_EQ(Fnv1a("\xff"), (kFnvStart ^ 0xffu) * 0x100000001b3u) << "bytes have no sign";
  EXPECT_NE(Fnv1a({"a\0", 2}), Fnv1a("a"));
}

TEST(Memory, Rounding) {
  static_assert(RoundUp(0, 64) == 0 && RoundUp(1, 64) == 64 && RoundUp(64, 64) == 64 &&
                RoundUp(65, 64) == 128);
  static_assert(CeilDiv(0, 3) == 0 && CeilDiv(1, 3) == 1 && CeilDiv(3, 3) == 1 &&
                CeilDiv(4, 3) == 2);
}

TEST(Pulse, CountsAndRests) {
  Pulse pulse;
  EXPECT_EQ(pulse.beats(), 0u);
  EXPECT_FALSE(pulse.resting());
  pulse.Beat();
  EXPECT_EQ(pulse.beats(), 1u);
  {
    const Pulse::Rest outer(pulse);
    EXPECT_TRUE(pulse.resting());
    {
      const Pulse::Rest inner(pulse);
      EXPECT_TRUE(pulse.resting());
    }
    EXPECT_TRUE(pulse.resting());  // they nest
    EXPECT_EQ(pulse.beats(), 2u);
  }
  EXPECT_FALSE(pulse.resting());
  EXPECT_EQ(pulse.beats(), 3u);  // the end of a rest is a beat, so that a watchdog sees a new count
}

TEST(Pulse, ZeroedMemoryIsOne) {
  alignas(Pulse) unsigned char memory[sizeof(Pulse)];
  std::memset(memory, 0, sizeof(memory));
  const auto& pulse = *reinterpret_cast<const Pulse*>(memory);
  EXPECT_EQ(pulse.beats(), 0u);
  EXPECT_FALSE(pulse.resting());
}

}  // namespace
}  // namespace larder
