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
int RunRounds(const std::vector<int>& groups, const WaitPolicy& policy, int rounds,
              const std::vector<int>& packages = {}) {
  const int threads = static_cast<int>(groups.size());
  TreeBarrier barrier(BarrierShape::Of(groups, packages), policy);
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

TEST(TreeBarrier, CountsThreadsAndGroups) {
  const std::vector<int> groups = {7, 7, -3, 7, -3};
  TreeBarrier barrier(BarrierShape::Of(groups, {}), kSpin);
  EXPECT_EQ(barrier.threads(), 5);
  EXPECT_EQ(barrier.groups(), 2);
}

TEST(TreeBarrier, NoThreadsIsAnError) {
  EXPECT_THROW(BarrierShape::Of({}, {}), Error);
  const std::vector<int> two = {0, 1}, one = {0};
  EXPECT_THROW(BarrierShape::Of(two, one), Error);
}

// Two packages of three groups of two threads, and one of a single thread: each line is read by the
// first thread of its own part of the machine, and between packages there are two.
TEST(TreeBarrier, EachLevelMeetsInItsOwnPartOfTheMachine) {
  const std::vector<int> groups = {0, 0, 1, 1, 2, 2, 7, 7, 5, 5, 6, 6, 9};
  const std::vector<int> packages = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2};
  const TreeBarrier barrier(BarrierShape::Of(groups, packages), kSpin);
  EXPECT_EQ(barrier.groups(), 7);
  EXPECT_EQ(barrier.packages(), 3);
  using Threads = std::vector<int>;
  const std::vector<Threads> waits = {
      {1, 2, 4, 6, 12}, {}, {3}, {}, {5}, {}, {7, 8, 10}, {}, {9}, {}, {11}, {}, {}};
  for (int t = 0; t < barrier.threads(); ++t)
    EXPECT_EQ(barrier.WaitsFor(t), waits[static_cast<size_t>(t)]) << t;
  // Who lets whom go on: thread t waits for a flag that the first of its part signals.
  const BarrierShape shape = BarrierShape::Of(groups, packages);
  const auto released_by = [&](size_t thread) {
    for (size_t t = 0; t < shape.seats.size(); ++t) {
      const BarrierShape::Seat& seat = shape.seats[t];
      for (uint32_t i = 0; i < seat.releases; ++i)
        if (static_cast<int32_t>(seat.release[i]) == shape.seats[thread].await_release)
          return static_cast<int>(t);
    }
    return -1;
  };
  const Threads expected = {-1, 0, 0, 2, 0, 4, 0, 6, 6, 8, 6, 10, 0};
  for (size_t t = 0; t < expected.size(); ++t) EXPECT_EQ(released_by(t), expected[t]) << t;
  // The far ones first: packages, groups of the package, threads of the group.
  EXPECT_EQ(shape.seats[0].releases, 3u);
  EXPECT_GT(shape.seats[0].release[0], shape.seats[0].release[1]);
  EXPECT_GT(shape.seats[0].release[1], shape.seats[0].release[2]);
}

TEST(TreeBarrier, OneThreadNeverWaits) {
  const std::vector<int> groups = {0};
  TreeBarrier barrier(BarrierShape::Of(groups, {}), kSpin);
  for (int i = 0; i < 100; ++i) barrier.Wait(0);
}

TEST(TreeBarrier, TwoSpinningThreads) { EXPECT_EQ(RunRounds({0, 0}, kSpin, 500), 0); }

TEST(TreeBarrier, NobodyPassesAlone) {
  const std::vector<int> groups = {0, 0};
  TreeBarrier barrier(BarrierShape::Of(groups, {}), kShortSpin);
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
  std::vector<int> packages = {};
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }
class BarrierShapes : public testing::TestWithParam<Shape> {};
TEST_P(BarrierShapes, NoStaleCellShortSpin) {
  EXPECT_EQ(RunRounds(GetParam().groups, kShortSpin, 300, GetParam().packages), 0);
}
TEST_P(BarrierShapes, NoStaleCellSleepAtOnce) {
  EXPECT_EQ(RunRounds(GetParam().groups, kSleepAtOnce, 100, GetParam().packages), 0);
}
INSTANTIATE_TEST_SUITE_P(
    Overcommitted, BarrierShapes,
    testing::Values(Shape{"exchange3", {0, 0, 0}}, Shape{"exchange4", {0, 0, 0, 0}},
                    Shape{"flat5", {0, 0, 0, 0, 0}}, Shape{"flat8", {1, 1, 1, 1, 1, 1, 1, 1}},
                    Shape{"even2x4", {0, 0, 0, 0, 1, 1, 1, 1}},
                    Shape{"interleaved", {0, 1, 2, 0, 1, 2, 0, 1}},
                    Shape{"uneven", {5, 3, 3, 3, 3, 3, 9, 9}},
                    Shape{"eachAlone", {0, 1, 2, 3, 4, 5, 6, 7}}, Shape{"twoGroupsOfOne", {0, 1}},
                    Shape{"packages", {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}},
                    Shape{"packagesOfOne", {0, 1, 2}, {0, 1, 2}},
                    Shape{
                        "packagesInterleaved", {0, 1, 2, 3, 0, 1, 2, 3}, {0, 1, 0, 1, 0, 1, 0, 1}}),
    [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace larder::sync
