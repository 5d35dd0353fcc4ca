#include "sync/spsc_ring.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>

namespace larder::sync {
namespace {

TEST(SpscRing, FillsDrainsAndKeepsOrder) {
  SpscRing<int, 4> ring;
  int value = -1;
  EXPECT_FALSE(ring.TryPop(&value));
  EXPECT_EQ(value, -1);
  for (int lap = 0; lap < 5; ++lap) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.TryPush(lap * 10 + i));
    EXPECT_EQ(ring.size(), 4u);
    EXPECT_FALSE(ring.TryPush(99));
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(ring.TryPop(&value));
      EXPECT_EQ(value, lap * 10 + i);
    }
    EXPECT_FALSE(ring.TryPop(&value));
    EXPECT_EQ(ring.size(), 0u);
  }
}

TEST(SpscRing, CapacityOneWorks) {
  SpscRing<int, 1> ring;
  int value = 0;
  for (int i = 1; i < 10; ++i) {
    EXPECT_TRUE(ring.TryPush(i));
    EXPECT_FALSE(ring.TryPush(i));
    EXPECT_TRUE(ring.TryPop(&value));
    EXPECT_EQ(value, i);
  }
}

struct Message {
  uint64_t number;
  uint64_t check;
};

TEST(SpscRingStress, EveryMessageOnceInOrderAndWhole) {
  constexpr uint64_t kMessages = 100000;
  auto ring = std::make_unique<SpscRing<Message, 8>>();
  std::thread producer([&] {
    for (uint64_t n = 0; n < kMessages; ++n) {
      while (!ring->TryPush({n, ~n * 3})) std::this_thread::yield();
    }
  });
  uint64_t wrong = 0;
  for (uint64_t n = 0; n < kMessages; ++n) {
    Message message{};
    while (!ring->TryPop(&message)) std::this_thread::yield();
    wrong += message.number != n || message.check != ~n * 3;
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
  Message message{};
  EXPECT_FALSE(ring->TryPop(&message));
}

}  // namespace
}  // namespace larder::sync
