// A CPU that a test describes: what it says is so, what it does not say is as it was.
#include "kernels/formats/host_cpu.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "kernels/formats/tuning.h"

namespace larder::kernels::inline formats {
namespace {

const HostCpu kAll = {.has = {true, true, true, true},
                      .core = {.l1_bytes = 32 << 10, .l2_bytes = 1 << 20, .vector_bytes = 64}};
using Has = std::array<bool, 4>;

TEST(HostCpu, IsAsDescribed) {
  const HostCpu same = Described(kAll, " ");
  EXPECT_EQ(same.has, kAll.has);
  EXPECT_EQ(same.core.l2_bytes, kAll.core.l2_bytes);
  const HostCpu rapids = Described(kAll, "isa=avx512-vnni l1=49152  l2=2097152");
  EXPECT_EQ(rapids.has, (Has{true, true, false, true}));
  EXPECT_EQ(rapids.core.l1_bytes, 49152u);
  EXPECT_EQ(rapids.core.l2_bytes, 2u << 20);
  EXPECT_EQ(rapids.core.vector_bytes, 64u);
  EXPECT_EQ(Described(kAll, "isa=avx-vnni").has, (Has{true, true, true, false}));
  EXPECT_EQ(Described(kAll, "isa=avx2 vector=32").has, (Has{true, true, false, false}));
  EXPECT_EQ(Described(kAll, "isa=avx2 vector=32").core.vector_bytes, 32u);
  EXPECT_EQ(Described(kAll, "isa=scalar l2=0").has, (Has{true, false, false, false}));
  EXPECT_EQ(Described(kAll, "isa=scalar l2=0").core.l2_bytes, 0u);
}

TEST(HostCpu, NeverHasMoreThanTheCpu) {
  HostCpu old = kAll;
  old.has = {true, true, false, false};
  EXPECT_THROW(Described(old, "isa=avx512-vnni"), Error);
  EXPECT_THROW(Described(old, "isa=avx-vnni"), Error);
  EXPECT_NO_THROW(Described(old, "isa=avx2"));
}

TEST(HostCpu, WhatIsNoDescriptionIsAnError) {
  for (const char* text : {"isa", "isa=", "isa=sse", "l2", "l2=", "l2=2M", "l2=-1", "=", "l3=1",
                           "vector=16", "l2=1 l2=1", "l2=99999999999999999999", "avx2"}) {
    try {
      Described(kAll, text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_TRUE(said.starts_with("LARDER_TEST_CPU: '")) << said;
      EXPECT_EQ(said.find('\n'), std::string::npos);
    }
  }
}

// Of any caches: what is used untuned fits, and what stays in L2 is never more than L2.
TEST(HostCpu, EveryCoreHasATuning) {
  for (const size_t l2 : {0, 256 << 10, 512 << 10, 1 << 20, 1280 << 10, 2 << 20}) {
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
      const KernelTuning tuning = DefaultTuning(isa, {.l1_bytes = 32 << 10, .l2_bytes = l2});
      EXPECT_EQ(tuning.in_l2_bytes, l2 / 4 * 3);
      EXPECT_EQ(WhyNotFit(isa, tuning.attention), "");
      for (const ScheduleTable* table : {&tuning.products, &tuning.products_in_l2}) {
        for (const Schedule& schedule : table->of) EXPECT_TRUE(ScheduleFits(isa, schedule));
      }
      // A third of 4 MiB stays in an L2 of 2 MiB, and in no smaller one.
      const ScheduleTable& third = tuning.For({32}, (4 << 20) / 3);
      EXPECT_EQ(&third == &tuning.products_in_l2, l2 == 2 << 20) << l2;
    }
  }
}

}  // namespace
}  // namespace larder::kernels::formats
