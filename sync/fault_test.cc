#include "sync/fault.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace larder::sync {
namespace {

TEST(FaultFlag, TheFirstFaultStays) {
  FaultFlag flag;
  EXPECT_FALSE(flag.raised());
  EXPECT_FALSE(flag.Read());
  EXPECT_TRUE(flag.Raise(FaultCode::kInternal, 12));
  EXPECT_FALSE(flag.Raise(FaultCode::kTimeout, 13));
  EXPECT_TRUE(flag.raised());
  EXPECT_EQ(flag.Read().code, FaultCode::kInternal);
  EXPECT_EQ(flag.Read().detail, 12u);
  EXPECT_STREQ(FaultName(flag.Read().code), "internal check");
}

TEST(FaultFlag, KeepsTheWholeDetail) {
  FaultFlag flag;
  flag.Raise(FaultCode::kSequence, 0xffffffffu);
  EXPECT_EQ(flag.Read().code, FaultCode::kSequence);
  EXPECT_EQ(flag.Read().detail, 0xffffffffu);
}

TEST(FaultFlagStress, ExactlyOneOfManyWins) {
  for (int round = 0; round < 50; ++round) {
    FaultFlag flag;
    std::atomic<int> winners{0};
    std::atomic<uint32_t> winner{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 1; t <= 8; ++t) {
      threads.emplace_back([&, t] {
        if (flag.Raise(FaultCode::kInternal, t)) {
          ++winners;
          winner = t;
        }
      });
    }
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(winners.load(), 1);
    ASSERT_EQ(flag.Read().detail, winner.load());
  }
}

}  // namespace
}  // namespace larder::sync
