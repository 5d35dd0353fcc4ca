#include "rdma/common/retry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace larder::rdma::inline common {
namespace {

// Many stages must not each try a host that refuses at once fifty times per second.
TEST(RetryPause, GrowsToItsLimitAndIsNeverTheSameForLong) {
  RetryPause pause(20, 1000);
  for (int whole_ms = 20; whole_ms < 1000; whole_ms = std::min(2 * whole_ms, 1000)) {
    const int ms = pause.NextMs();
    EXPECT_GE(ms, whole_ms / 2);
    EXPECT_LE(ms, whole_ms);
  }
  std::set<int> seen;
  for (int i = 0; i < 100; ++i) {
    const int ms = pause.NextMs();
    EXPECT_GE(ms, 500);
    EXPECT_LE(ms, 1000);
    seen.insert(ms);
  }
  EXPECT_GT(seen.size(), 10u);
}

}  // namespace
}  // namespace larder::rdma::common
