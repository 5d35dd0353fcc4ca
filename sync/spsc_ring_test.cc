#include "sync/spsc_ring.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>

namespace larder::sync {
namespace {

TEST(SpscRing, FillsDrainsAndKeepsOrder) {
  SpscRing<int> ring(4);
  int value = -1;
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(ring.Pop(value));
  EXPECT_EQ(value, -1);
  for (int lap = 0; lap < 5; ++lap) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.Push(lap * 10 + i));
    EXPECT_FALSE(ring.Push(99));
    EXPECT_FALSE(ring.empty());
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(ring.Pop(value));
      EXPECT_EQ(value, lap * 10 + i);
    }
    EXPECT_FALSE(ring.Pop(value));
    EXPECT_TRUE(ring.empty());
  }
}

TEST(SpscRing, CapacityOneWorks) {
  SpscRing<int> ring(1);
  int value = 0;
  for (int i = 1; i < 10; ++i) {
    EXPECT_TRUE(ring.Push(int{i}));
    EXPECT_FALSE(ring.Push(int{i}));
    EXPECT_TRUE(ring.Pop(value));
    EXPECT_EQ(value, i);
  }
}

TEST(SpscRing, OwnsWhatIsInItAndNothingElse) {
  auto owned = std::make_shared<int>(1);
  SpscRing<std::shared_ptr<int>> ring(2);
  EXPECT_TRUE(ring.Push(std::shared_ptr(owned)));
  EXPECT_TRUE(ring.Push(std::shared_ptr(owned)));
  std::shared_ptr<int> refused = owned;
  EXPECT_FALSE(ring.Push(std::move(refused)));
  EXPECT_EQ(refused, owned);  // still the caller's
  refused.reset();
  EXPECT_EQ(owned.use_count(), 3);
  std::shared_ptr<int> value;
  EXPECT_TRUE(ring.Pop(value));
  value.reset();
  EXPECT_EQ(owned.use_count(), 2);  // not in the cell any more
}

struct Message {
  uint64_t number;
  uint64_t check;
};

TEST(SpscRingStress, EveryMessageOnceInOrderAndWhole) {
  constexpr uint64_t kMessages = 100000;
  SpscRing<Message> ring(8);
  std::thread producer([&] {
    for (uint64_t n = 0; n < kMessages; ++n) {
      while (!ring.Push({n, ~n * 3})) std::this_thread::yield();
    }
  });
  uint64_t wrong = 0;
  for (uint64_t n = 0; n < kMessages; ++n) {
    Message message{};
    while (!ring.Pop(message)) std::this_thread::yield();
    wrong += message.number != n || message.check != ~n * 3;
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
  Message message{};
  EXPECT_FALSE(ring.Pop(message));
}

}  // namespace
}  // namespace larder::sync
