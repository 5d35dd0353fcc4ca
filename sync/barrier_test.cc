#include "sync/barrier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "sync/wait_policies_testing.h"

namespace larder::sync {
namespace {

// Every thread writes its cell, meets the others, and checks that it sees every cell of this round.
// A barrier that lets a thread through early shows it a stale cell (and ThreadSanitizer reports a
// race). Returns the number of stale cells.
int RunRounds(const std::vector<int>& groups, const WaitPolicy& policy, int rounds) {
  const int threads = static_cast<int>(groups.size());
  TwoLevelBarrier barrier(groups, policy);
  std::vector<int> cells(threads, 0), stale(threads, 0);
  std::vector<std::thread> workers;
  auto body = [&](int me) {
    for (int r = 1; r <= rounds; ++r) {
      cells[me] = r;
      barrier.Wait(me);
      for (int t = 0; t < threads; ++t) stale[me] += cells[t] != r;
      barrier.Wait(me);
    }
  };
  for (int t = 1; t < threads; ++t) workers.emplace_back(body, t);
  body(0);
  for (std::thread& w : workers) w.join();
  int total = 0;
  for (int s : stale) total += s;
  return total;
}

TEST(TwoLevelBarrier, CountsThreadsAndGroups) {
  const std::vector<int> groups = {7, 7, -3, 7, -3};
  TwoLevelBarrier barrier(groups, kSpin);
  EXPECT_EQ(barrier.threads(), 5);
  EXPECT_EQ(barrier.groups(), 2);
}

TEST(TwoLevelBarrier, NoThreadsIsAnError) { EXPECT_THROW(TwoLevelBarrier({}, kSpin), Error); }

TEST(TwoLevelBarrier, OneThreadNeverWaits) {
  const std::vector<int> groups = {0};
  TwoLevelBarrier barrier(groups, kSpin);
  for (int i = 0; i < 100; ++i) barrier.Wait(0);
}

TEST(TwoLevelBarrier, TwoSpinningThreads) { EXPECT_EQ(RunRounds({0, 0}, kSpin, 500), 0); }

TEST(TwoLevelBarrier, NobodyPassesAlone) {
  const std::vector<int> groups = {0, 0};
  TwoLevelBarrier barrier(groups, kShortSpin);
  std::atomic<bool> passed{false};
  std::thread other([&] {
    barrier.Wait(1);
    passed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(passed.load());
  barrier.Wait(0);
  other.join();
  EXPECT_TRUE(passed.load());
}

struct Shape {
  std::string name;
  std::vector<int> groups;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }
class BarrierShapes : public testing::TestWithParam<Shape> {};
TEST_P(BarrierShapes, NoStaleCellShortSpin) {
  EXPECT_EQ(RunRounds(GetParam().groups, kShortSpin, 300), 0);
}
TEST_P(BarrierShapes, NoStaleCellSleepAtOnce) {
  EXPECT_EQ(RunRounds(GetParam().groups, kSleepAtOnce, 100), 0);
}
INSTANTIATE_TEST_SUITE_P(
    Overcommitted, BarrierShapes,
    testing::Values(Shape{"exchange3", {0, 0, 0}}, Shape{"exchange4", {0, 0, 0, 0}},
                    Shape{"flat5", {0, 0, 0, 0, 0}}, Shape{"flat8", {1, 1, 1, 1, 1, 1, 1, 1}},
                    Shape{"even2x4", {0, 0, 0, 0, 1, 1, 1, 1}},
                    Shape{"interleaved", {0, 1, 2, 0, 1, 2, 0, 1}},
                    Shape{"uneven", {5, 3, 3, 3, 3, 3, 9, 9}},
                    Shape{"eachAlone", {0, 1, 2, 3, 4, 5, 6, 7}}, Shape{"twoGroupsOfOne", {0, 1}}),
    [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace larder::sync
