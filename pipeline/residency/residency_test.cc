#include "pipeline/residency/residency.h"

#include <gtest/gtest.h>

#include <string>

namespace larder::pipeline::inline residency {
namespace {

TEST(ResidentShare, IsTheMixtureThatTakesTheMeasuredTime) {
  const ResidencyBaseline baseline{.l3_gbps = 40, .dram_gbps = 10};
  for (const double share : {0.0, 0.25, 0.5, 1.0})
    EXPECT_NEAR(ResidentShare(1 / (share / 40 + (1 - share) / 10), baseline), share, 1e-12);
  EXPECT_EQ(ResidentShare(100, baseline), 1) << "faster than L3, from L2";
  EXPECT_EQ(ResidentShare(5, baseline), 0) << "slower than memory";
}

TEST(ResidentShare, WhatWasNotMeasuredIsNotResident) {
  EXPECT_EQ(ResidentShare(20, {}), 0);
  EXPECT_EQ(ResidentShare(0, {.l3_gbps = 40, .dram_gbps = 10}), 0);
  EXPECT_EQ(ResidentShare(20, {.l3_gbps = 40, .dram_gbps = 0}), 0);
}

TEST(ResidentShare, WithoutAFasterL3AllOrNothing) {
  for (const double l3_gbps : {0.0, 8.0, 10.0}) {
    EXPECT_EQ(ResidentShare(10, {.l3_gbps = l3_gbps, .dram_gbps = 10}), 1);
    EXPECT_EQ(ResidentShare(9, {.l3_gbps = l3_gbps, .dram_gbps = 10}), 0);
  }
}

TEST(Residency, SumsItsShards) {
  const Residency residency{
      .baseline = {.l3_gbps = 40, .dram_gbps = 10},
      .shards = {{.thread = 0, .bytes = 3'000'000, .reread_gbps = 40, .resident_share = 1},
                 {.thread = 1, .bytes = 1'000'000, .reread_gbps = 16, .resident_share = 0.5}}};
  EXPECT_EQ(residency.bytes(), 4'000'000u);
  EXPECT_EQ(residency.resident_bytes(), 3'500'000u);
  EXPECT_EQ(residency.reread_gbps(), 56);
  EXPECT_EQ(residency.resident_share(), 0.875);
  EXPECT_EQ(residency.Text(),
            "residency: 88 % of the weights re-read at L3 speed (per thread: L3 40.0 GB/s, memory "
            "10.0 GB/s)\n"
            "  thread   weights MB   re-read GB/s   resident\n"
            "       0         3.00           40.0      100 %\n"
            "       1         1.00           16.0       50 %\n");
}

TEST(Residency, OfNothingIsZero) {
  const Residency nothing;
  EXPECT_EQ(nothing.bytes(), 0u);
  EXPECT_EQ(nothing.resident_share(), 0);
  EXPECT_EQ(nothing.reread_gbps(), 0);
}

}  // namespace
}  // namespace larder::pipeline::residency
