// One suite for every sync::Link. A link's own test file includes this, describes how a pair of ends is made,
// and instantiates the suite:
//   struct MyPair {
//     static constexpr bool kAnyFirstSequence;   // can its numbers start anywhere? (they wrap at 2^32)
//     MyPair(size_t frame_bytes, size_t slots, uint32_t first_sequence = 0);
//     auto& sender();                            // the two may be one object
//     auto& receiver();
//     void CorruptNumber(std::byte* frame, uint32_t number);  // of a frame that was sent, not yet received
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(MyLink, LinkConformance, MyPair);
// Only threads are used here, so the suite runs under ThreadSanitizer; processes are in shm_process_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "sync/link.h"

namespace larder::rdma {

// What byte i of frame n holds. 251 is prime: no two frames near each other, and no shifts of one, look
// alike.
inline std::byte ConformanceByte(uint32_t n, size_t i) {
  return static_cast<std::byte>((n * 2654435761u >> 8) + i % 251);
}
inline void FillFrame(std::byte* bytes, size_t count, uint32_t n) {
  for (size_t i = 0; i < count; ++i) bytes[i] = ConformanceByte(n, i);
}
inline size_t WrongBytes(const std::byte* bytes, size_t count, uint32_t n) {
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += bytes[i] != ConformanceByte(n, i);
  return wrong;
}

// The two loops of a stress run: every frame whole and in order. They give the core away while they wait,
// because there may be more threads than cores. Both end early on a fault.
template <sync::Link L>
void SendFrames(L& link, uint32_t first, uint32_t count) {
  for (uint32_t n = first; n != first + count && !link.fault();) {
    const sync::SendSlot slot = link.BeginSend();
    if (!slot) {
      std::this_thread::yield();
      continue;
    }
    FillFrame(slot.bytes, link.frame_bytes(), n++);
    link.EndSend();
  }
}
// Bytes and numbers that were not as they should be; a fault counts as one, too.
template <sync::Link L>
size_t ReceiveFrames(L& link, uint32_t first, uint32_t count) {
  size_t wrong = 0;
  for (uint32_t n = first; n != first + count;) {
    if (link.fault()) return wrong + 1;
    const sync::ReceivedFrame frame = link.BeginReceive();
    if (!frame) {
      std::this_thread::yield();
      continue;
    }
    wrong += (frame.sequence != n) + WrongBytes(frame.bytes, link.frame_bytes(), n);
    link.EndReceive();
    ++n;
  }
  return wrong;
}

template <typename Pair>
class LinkConformance : public testing::Test {};
TYPED_TEST_SUITE_P(LinkConformance);

TYPED_TEST_P(LinkConformance, SaysItsShapeAndHasNothingAtFirst) {
  TypeParam pair(100, 3);
  EXPECT_EQ(pair.sender().frame_bytes(), 100u);
  EXPECT_EQ(pair.receiver().frame_bytes(), 100u);
  EXPECT_EQ(pair.sender().slots(), 3u);
  EXPECT_FALSE(pair.receiver().BeginReceive());
  EXPECT_FALSE(pair.sender().fault());
}

TYPED_TEST_P(LinkConformance, OrderAndContentsUntilTheSlotsAreUsed) {
  for (const size_t slots : {1, 2, 3, 7, 8}) {
    constexpr size_t kBytes = 100;
    TypeParam pair(kBytes, slots);
    uint32_t sent = 0, received = 0;
    for (int lap = 0; lap < 5; ++lap) {
      for (size_t i = 0; i < slots; ++i) {
        const sync::SendSlot slot = pair.sender().BeginSend();
        ASSERT_TRUE(slot);
        EXPECT_EQ(slot.sequence, sent);
        EXPECT_EQ(pair.sender().BeginSend().bytes, slot.bytes);  // the same slot until it is handed over
        FillFrame(slot.bytes, kBytes, sent++);
        pair.sender().EndSend();
      }
      EXPECT_FALSE(pair.sender().BeginSend()) << slots << " slots, all in flight";
      for (size_t i = 0; i < slots; ++i) {
        const sync::ReceivedFrame frame = pair.receiver().BeginReceive();
        ASSERT_TRUE(frame);
        EXPECT_EQ(pair.receiver().BeginReceive().bytes, frame.bytes);  // the same frame until it is released
        EXPECT_EQ(frame.sequence, received);
        EXPECT_EQ(WrongBytes(frame.bytes, kBytes, received++), 0u);
        EXPECT_FALSE(i == 0 && pair.sender().BeginSend());  // looked at is not released
        pair.receiver().EndReceive();
        EXPECT_TRUE(pair.sender().BeginSend());  // one slot is free again
      }
      EXPECT_FALSE(pair.receiver().BeginReceive());
    }
    EXPECT_FALSE(pair.receiver().fault());
  }
}

TYPED_TEST_P(LinkConformance, AFrameNotEndedIsNotReceived) {
  TypeParam pair(8, 2);
  ASSERT_TRUE(pair.sender().BeginSend());
  EXPECT_FALSE(pair.receiver().BeginReceive());
  pair.sender().EndSend();
  EXPECT_TRUE(pair.receiver().BeginReceive());
}

// Sizes round the borders of lines and pages: frames are aligned, do not overlap, and arrive whole.
TYPED_TEST_P(LinkConformance, FramesOfOddSizes) {
  for (const size_t bytes : {1, 3, 4, 63, 64, 65, 127, 128, 129, 191, 192, 193, 4095, 4096, 4097, 12289}) {
    constexpr size_t kSlots = 3;
    TypeParam pair(bytes, kSlots);
    for (uint32_t n = 0; n < kSlots; ++n) {
      const sync::SendSlot slot = pair.sender().BeginSend();
      ASSERT_TRUE(slot);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(slot.bytes) % kCacheLineBytes, 0u) << bytes;
      FillFrame(slot.bytes, bytes, n);
      pair.sender().EndSend();
    }
    for (uint32_t n = 0; n < kSlots; ++n) {
      const sync::ReceivedFrame frame = pair.receiver().BeginReceive();
      ASSERT_TRUE(frame) << bytes;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(frame.bytes) % kCacheLineBytes, 0u) << bytes;
      EXPECT_EQ(WrongBytes(frame.bytes, bytes, n), 0u) << bytes;
      pair.receiver().EndReceive();
    }
  }
}

TYPED_TEST_P(LinkConformance, NumbersWrapAround) {
  if constexpr (!TypeParam::kAnyFirstSequence) {
    GTEST_SKIP() << "this link's numbers always start at 0: 2^32 frames would be needed";
  } else {
    for (const size_t slots : {1, 3, 4}) {  // 3 does not divide 2^32: the slot is not number % slots
      const uint32_t first = 0u - 5;
      TypeParam pair(64, slots, first);
      for (uint32_t n = first; n != 20; ++n) {
        const sync::SendSlot slot = pair.sender().BeginSend();
        ASSERT_TRUE(slot) << n;
        EXPECT_EQ(slot.sequence, n);
        FillFrame(slot.bytes, 64, n);
        pair.sender().EndSend();
        if (slots > 1 && n == first) continue;  // from here on one frame more is in flight
        const uint32_t expected = slots > 1 ? n - 1 : n;
        const sync::ReceivedFrame frame = pair.receiver().BeginReceive();
        ASSERT_TRUE(frame) << n;
        EXPECT_EQ(frame.sequence, expected);
        EXPECT_EQ(WrongBytes(frame.bytes, 64, expected), 0u);
        pair.receiver().EndReceive();
      }
    }
  }
}

// Every wrong number near the right one, among them those of the slot's earlier and next frame.
TYPED_TEST_P(LinkConformance, AWrongNumberIsAStickyFaultThatBothEndsSee) {
  for (const uint32_t wrong : {0u, 1u, 2u, 4u, 5u, 6u, 17u, 0x8000'0003u, 0xffff'ffffu}) {
    TypeParam pair(64, 3);
    for (uint32_t n = 0; n < 3; ++n) {
      ASSERT_TRUE(pair.sender().BeginSend());
      pair.sender().EndSend();
      ASSERT_TRUE(pair.receiver().BeginReceive());
      pair.receiver().EndReceive();
    }
    const sync::SendSlot slot = pair.sender().BeginSend();
    ASSERT_TRUE(slot);
    ASSERT_EQ(slot.sequence, 3u);
    pair.sender().EndSend();
    pair.CorruptNumber(slot.bytes, wrong);
    EXPECT_FALSE(pair.receiver().BeginReceive()) << wrong;
    EXPECT_EQ(pair.receiver().fault().code, sync::FaultCode::kSequence) << wrong;
    EXPECT_EQ(pair.receiver().fault().detail, wrong);
    EXPECT_EQ(pair.sender().fault().code, sync::FaultCode::kSequence) << wrong;
    pair.CorruptNumber(slot.bytes, 3);  // being right again does not lift it
    EXPECT_FALSE(pair.receiver().BeginReceive());
    EXPECT_FALSE(pair.sender().BeginSend());
  }
}

TYPED_TEST_P(LinkConformance, StressTwoThreads) {
  constexpr uint32_t kFrames = 10000;
  TypeParam pair(333, 4);
  std::thread sender([&] { SendFrames(pair.sender(), 0, kFrames); });
  EXPECT_EQ(ReceiveFrames(pair.receiver(), 0, kFrames), 0u);
  sender.join();
  EXPECT_FALSE(pair.receiver().fault());
}

// Eight threads, far more than the cores that a test machine is sure to have.
TYPED_TEST_P(LinkConformance, StressFourLinksOvercommitted) {
  constexpr uint32_t kFrames = 1500;
  std::vector<std::unique_ptr<TypeParam>> pairs;
  for (size_t slots = 1; slots <= 4; ++slots)
    pairs.push_back(std::make_unique<TypeParam>(60 * slots + 1, slots));
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> threads;
  for (auto& pair : pairs) {
    threads.emplace_back([&] { SendFrames(pair->sender(), 0, kFrames); });
    threads.emplace_back([&] { wrong += ReceiveFrames(pair->receiver(), 0, kFrames); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
}

REGISTER_TYPED_TEST_SUITE_P(LinkConformance, SaysItsShapeAndHasNothingAtFirst,
                            OrderAndContentsUntilTheSlotsAreUsed, AFrameNotEndedIsNotReceived,
                            FramesOfOddSizes, NumbersWrapAround, AWrongNumberIsAStickyFaultThatBothEndsSee,
                            StressTwoThreads, StressFourLinksOvercommitted);

}  // namespace larder::rdma
