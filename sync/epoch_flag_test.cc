#include "sync/epoch_flag.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sync/wait_policies_testing.h"

namespace larder::sync {
namespace {

TEST(EpochReached, ComparesAcrossTheWrap) {
  EXPECT_TRUE(EpochReached(5, 5));
  EXPECT_TRUE(EpochReached(6, 5));
  EXPECT_FALSE(EpochReached(4, 5));
  EXPECT_TRUE(EpochReached(2, 0xfffffffeu));   // 4 past the wrap
  EXPECT_FALSE(EpochReached(0xfffffffeu, 2));  // 4 before it
  EXPECT_TRUE(EpochReached(0x7fffffffu, 0));
  EXPECT_FALSE(EpochReached(0x80000000u, 0));
}

TEST(EpochFlag, StartsUnsignalledAndRemembers) {
  EpochFlag flag;
  EXPECT_EQ(flag.Load(), 0u);
  EXPECT_FALSE(flag.Reached(1));
  flag.Signal(3);
  EXPECT_TRUE(flag.Reached(3));
  EXPECT_TRUE(flag.Reached(1));
  EXPECT_FALSE(flag.Reached(4));
  flag.Wait(2, kSpin);  // returns at once
}

TEST(EpochFlag, FieldsOfDifferentWritersLieApart) {
  EXPECT_EQ(sizeof(EpochFlag), 256u);
  EpochFlag flags[2];
  EXPECT_EQ(reinterpret_cast<uintptr_t>(&flags[0]) % 128, 0u);
}

// One producer hands over a plain (not atomic) payload with the flag, seven consumers check it; the
// counter wraps on the way. ThreadSanitizer reports a missing acquire or release as a race on the
// payload.
void Broadcast(const WaitPolicy& policy) {
  constexpr uint32_t kStart = 0xffffff00u;
  constexpr uint32_t kRounds = 600;
  constexpr int kConsumers = 7;
  EpochFlag produced(kStart);
  std::unique_ptr<EpochFlag[]> consumed(new EpochFlag[kConsumers]);
  for (int c = 0; c < kConsumers; ++c) consumed[c].Signal(kStart);
  uint64_t payload = 0;
  std::vector<uint64_t> sums(kConsumers, 0);
  std::vector<std::thread> threads;
  for (int c = 0; c < kConsumers; ++c) {
    threads.emplace_back([&, c] {
      for (uint32_t r = 1; r <= kRounds; ++r) {
        produced.Wait(kStart + r, policy);
        sums[c] += payload;
        consumed[c].Signal(kStart + r, policy.mode);
      }
    });
  }
  for (uint32_t r = 1; r <= kRounds; ++r) {
    for (int c = 0; c < kConsumers; ++c) consumed[c].Wait(kStart + r - 1, policy);
    payload = r;
    produced.Signal(kStart + r, policy.mode);
  }
  for (std::thread& t : threads) t.join();
  for (int c = 0; c < kConsumers; ++c)
    EXPECT_EQ(sums[c], uint64_t{kRounds} * (kRounds + 1) / 2) << "consumer " << c;
}
TEST(EpochFlagStress, OvercommittedSleepAtOnce) { Broadcast(kSleepAtOnce); }
TEST(EpochFlagStress, OvercommittedShortSpin) { Broadcast(kShortSpin); }

// The window in which a wake can be lost is a few instructions wide. Two threads ping-pong without
// any spin, so that each hand-over passes through it.
TEST(EpochFlagStress, PingPongLosesNoWake) {
  constexpr uint32_t kRounds = 20000;
  EpochFlag ping, pong;
  std::thread other([&] {
    for (uint32_t r = 1; r <= kRounds; ++r) {
      ping.Wait(r, kSleepAtOnce);
      pong.Signal(r);
    }
  });
  for (uint32_t r = 1; r <= kRounds; ++r) {
    ping.Signal(r);
    pong.Wait(r, kSleepAtOnce);
  }
  other.join();
  EXPECT_EQ(pong.Load(), kRounds);
}

TEST(EpochFlagStress, SpinningHandOver) {
  constexpr uint32_t kRounds = 2000;
  EpochFlag ping, pong;
  uint32_t payload = 0;
  std::thread other([&] {
    for (uint32_t r = 1; r <= kRounds; ++r) {
      ping.Wait(r, kSpin);
      ++payload;
      pong.Signal(r, kSpin.mode);
    }
  });
  for (uint32_t r = 1; r <= kRounds; ++r) {
    ++payload;
    ping.Signal(r, kSpin.mode);
    pong.Wait(r, kSpin);
  }
  other.join();
  EXPECT_EQ(payload, 2 * kRounds);
}

}  // namespace
}  // namespace larder::sync
