#include "node/tasks/residency_warning.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace larder::node::inline tasks {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Looks once a second, with frames in between; returns the seconds at which it warned.
class ResidencyWarningTest : public testing::Test {
 protected:
  std::vector<int> Look(int seconds, std::optional<double> live, bool computes = true) {
    std::vector<int> warned;
    for (int i = 0; i < seconds; ++i, ++now_) {
      frames_ += computes ? 10 : 0;
      if (warning_.Due(now_ * kSecond, frames_, live)) warned.push_back(now_);
    }
    return warned;
  }
  ResidencyWarning warning_;
  int now_ = 0;
  uint64_t frames_ = 0;
};

using Seconds = std::vector<int>;

TEST_F(ResidencyWarningTest, WarnsOnceOfWhatStaysLow) {
  EXPECT_EQ(Look(10, 0.95), Seconds{});
  EXPECT_EQ(Look(200, 0.3), Seconds{12});
}

TEST_F(ResidencyWarningTest, AMomentIsNoReason) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Look(2, 0.1), Seconds{});
    EXPECT_EQ(Look(1, 0.75), Seconds{});
  }
}

TEST_F(ResidencyWarningTest, WarnsAgainWhenItWasHighBetweenButNotWithinAMinute) {
  EXPECT_EQ(Look(3, 0.3), Seconds{2});
  Look(5, 0.8);
  EXPECT_EQ(Look(100, 0.3), Seconds{}) << "it was never high";
  now_ = 200;
  Look(1, 0.9);
  EXPECT_EQ(Look(5, 0.3), Seconds{203});
  Look(1, 0.9);
  EXPECT_EQ(Look(100, 0.3), Seconds{263}) << "a minute after the last one";
}

TEST_F(ResidencyWarningTest, AnIdleOrUnmeasuredSocketSaysNothing) {
  EXPECT_EQ(Look(50, 0.1, false), Seconds{});
  EXPECT_EQ(Look(50, std::nullopt), Seconds{});
}

serving::SocketPlace Place(uint64_t weights, uint64_t budget) {
  serving::SocketPlace place{.name = "all"};
  place.l3_groups = {
      {.l3_bytes = 32'000'000, .budget_bytes = budget, .weight_bytes = weights, .cores = {}}};
  return place;
}

TEST(ResidencyLineTest, SaysWhatItWasAndWhoIsToBlame) {
  const serving::SocketPlace place = Place(24'000'000, 24'000'000);
  const std::string kv = ResidencyLine(place, 0.97, 0.413, 14'200'000);
  EXPECT_NE(kv.find("all: 41 % of the weights are in L3 when they are read, of 97 % after loading: "
                    "14.2 MB of KV are in use, and beside the weights L3 has 8.0 MB;"),
            std::string::npos)
      << kv;
  const std::string neighbours = ResidencyLine(place, std::nullopt, 0.413, 7'000'000);
  EXPECT_NE(neighbours.find("read: the 7.0 MB of KV in use have room beside them (8.0 MB), so "
                            "other work uses this L3"),
            std::string::npos)
      << neighbours;
}

TEST(ResidencyLineTest, OnlyWhatThePlanKeepsThereIsMissed) {
  EXPECT_TRUE(IsPlannedResident(Place(24'000'000, 24'000'000)));
  EXPECT_FALSE(IsPlannedResident(Place(24'000'001, 24'000'000)));
  EXPECT_FALSE(IsPlannedResident(Place(1000, 0))) << "the size of the L3 is not known";
  EXPECT_FALSE(IsPlannedResident({}));
}

}  // namespace
}  // namespace larder::node::tasks
