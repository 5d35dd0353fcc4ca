#include "sync/wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "sync/wait_policies_testing.h"

namespace larder::sync {
namespace {

TEST(WaitUntil, ReturnsAtOnceWhenReady) {
  std::atomic<uint32_t> word{7}, sleepers{0};
  WaitUntil(word, sleepers, kSleepAtOnce, [](uint32_t v) { return v == 7; });
  EXPECT_EQ(sleepers.load(), 0u);
}

// The waiter is asleep, or about to be, when Publish comes: only a wake, or the kernel's comparison
// of the word, lets it return. A Publish without the wake makes this test hang.
TEST(WaitUntil, ASleeperIsWoken) {
  std::atomic<uint32_t> word{0}, sleepers{0};
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    WaitUntil(word, sleepers, kSleepAtOnce, [](uint32_t v) { return v == 1; });
    returned = true;
  });
  while (sleepers.load() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // let it reach the kernel
  EXPECT_FALSE(returned.load());
  Publish(word, sleepers, 1);
  waiter.join();
  EXPECT_TRUE(returned.load());
  EXPECT_EQ(sleepers.load(), 0u);
}

// A change of the word that is not the awaited one must not end the wait.
TEST(WaitUntil, SleepsAgainWhenNotReady) {
  std::atomic<uint32_t> word{0}, sleepers{0};
  std::atomic<uint32_t> seen{0};
  std::thread waiter([&] {
    WaitUntil(word, sleepers, kSleepAtOnce, [&](uint32_t v) {
      seen = v;
      return v >= 3;
    });
  });
  for (uint32_t v = 1; v <= 3; ++v) {
    while (sleepers.load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Publish(word, sleepers, v);
    while (seen.load() < v) std::this_thread::yield();
  }
  waiter.join();
  EXPECT_EQ(seen.load(), 3u);
}

TEST(SpinIterations, GrowWithTimeAndAreNeverNone) {
  EXPECT_GE(SpinIterationsFor(0), 1u);
  EXPECT_GT(SpinIterationsFor(1'000'000), SpinIterationsFor(10'000));
}

}  // namespace
}  // namespace larder::sync
