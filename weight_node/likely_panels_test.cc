#include "weight_node/likely_panels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace larder::weight_node {
namespace {

size_t CountOf(const std::vector<float>& largest) {
  const LikelyPanels likely(largest);
  return static_cast<size_t>(
      std::ranges::count_if(largest, [&](float of_panel) { return likely.Has(of_panel); }));
}

TEST(LikelyPanels, ThoseWithinFourOfTheLargest) {
  std::vector<float> largest(1000, -20.0f);
  largest[3] = 12.0f;
  largest[500] = 8.1f;   // 3.9 below
  largest[999] = 7.99f;  // 4.01 below
  const LikelyPanels likely(largest);
  EXPECT_TRUE(likely.Has(12.0f));
  EXPECT_TRUE(likely.Has(8.1f));
  EXPECT_FALSE(likely.Has(7.99f));
  EXPECT_EQ(CountOf(largest), 2u);
}

// The likeliest ones, as many as are whole eighths of a nat; never more than one in 64.
TEST(LikelyPanels, AreLimited) {
  std::vector<float> largest(6400);
  for (size_t i = 0; i < largest.size(); ++i) largest[i] = -static_cast<float>(i) / 1000;
  EXPECT_EQ(CountOf(largest), 0u) << "125 are within an eighth of the largest: too many";
  for (float& of_panel : largest) of_panel *= 2;
  EXPECT_EQ(CountOf(largest), 63u);
  EXPECT_EQ(CountOf(std::vector<float>(6400, 1.0f)), 0u);
}

TEST(LikelyPanels, OfAFewPanelsTheLargest) {
  EXPECT_EQ(CountOf({1.0f, 9.0f}), 1u);
  EXPECT_EQ(CountOf({-3.0f}), 1u);
  EXPECT_EQ(CountOf({}), 0u);
}

TEST(LikelyPanels, NumbersThatAreNoneAreNotLikely) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(CountOf({nan, nan}), 0u);
  EXPECT_EQ(CountOf({nan, 2.0f}), 1u);
  EXPECT_EQ(CountOf({infinity, 2.0f}), 0u);
  EXPECT_EQ(CountOf({-infinity, -infinity}), 0u);
}

}  // namespace
}  // namespace larder::weight_node
