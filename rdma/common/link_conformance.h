// One suite for every sync::Link. A link's own test file includes this, describes how a pair of
// ends is made, and instantiates the suite:
//   struct MyPair {
//     // Can its numbers start anywhere? (They wrap at 2^32.)
//     static constexpr bool kAnyFirstSequence;
//     // This many released frames are never held back.
//     static size_t CreditBatch(size_t slots);
//     MyPair(size_t frame_bytes, size_t slots, uint32_t first_sequence = 0);
//     // Why this machine cannot make one, or null.
//     static const char* Missing();
//     // Frames of a stress run of about a second.
//     static constexpr uint32_t kStressFrames;
//     auto& sender();    // the two may be one object
//     auto& receiver();
//     // The next frame, with a number that may be wrong.
//     void SendNumbered(uint32_t number);
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(MyLink, LinkConformance, MyPair);
// The other end may see an action a little later, so the suite waits where something must arrive.
// Only threads are used here, so the suite runs under ThreadSanitizer; processes are in
// *_process_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"
#include "sync/link.h"
#include "sync/wait.h"

namespace larder::rdma::inline common {

// The contents of byte i of frame n. 251 is prime, so neighbouring frames, and shifts of one frame,
// differ.
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

// How many bytes of frame n are sent: all of every second frame, otherwise any number from none to
// all.
inline size_t FrameSize(uint32_t n, size_t frame_bytes) {
  return n % 2 == 0 ? frame_bytes : n * 2654435761u % (frame_bytes + 1);
}

// Returns true as soon as condition() is true; false after so long that something must hang.
template <typename Condition>
bool Soon(Condition condition) {
  for (const int64_t start_ns = NowNs(); SecondsSince(start_ns) < 30;) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return false;
}

// The two loops of a stress run: every frame arrives whole and in order. They yield while they
// wait, because there may be more threads than cores. Both end early on a fault.
template <sync::Link L>
void SendFrames(L& link, uint32_t first, uint32_t count) {
  for (uint32_t n = first; n != first + count && !link.fault();) {
    const sync::SendSlot slot = link.BeginSend();
    if (!slot) {
      std::this_thread::yield();
      continue;
    }
    const size_t size_bytes = FrameSize(n, link.frame_bytes());
    FillFrame(slot.bytes, size_bytes, n++);
    link.EndSend(size_bytes);
  }
}
// Returns the number of wrong bytes, sizes and sequence numbers; a fault counts as one.
inline size_t WrongInFrame(const sync::ReceivedFrame& frame, uint32_t n, size_t frame_bytes) {
  if (frame.sequence != n || frame.size_bytes != FrameSize(n, frame_bytes)) return 1;
  return WrongBytes(frame.bytes, frame.size_bytes, n);
}
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
    wrong += WrongInFrame(frame, n++, link.frame_bytes());
    link.EndReceive();
  }
  return wrong;
}

template <typename L>
concept Waits = requires(L& link) {
  link.WaitReceive(sync::WaitPolicy{});
};

inline constexpr sync::WaitPolicy kConformanceWaits[] = {{sync::WaitPolicy::Mode::kAdaptive, 0},
                                                         {sync::WaitPolicy::Mode::kAdaptive, 500},
                                                         {sync::WaitPolicy::Mode::kSpin, 0}};

template <typename Pair>
class LinkConformance : public testing::Test {
 protected:
  void SetUp() override {
    if (Pair::Missing() != nullptr) GTEST_SKIP() << Pair::Missing();
  }
};
TYPED_TEST_SUITE_P(LinkConformance);

TYPED_TEST_P(LinkConformance, SaysItsShapeAndHasNothingAtFirst) {
  TypeParam pair(100, 3);
  EXPECT_EQ(pair.sender().frame_bytes(), 100u);
  EXPECT_EQ(pair.receiver().frame_bytes(), 100u);
  EXPECT_EQ(pair.sender().slots(), 3u);
  EXPECT_FALSE(pair.receiver().BeginReceive());
  EXPECT_FALSE(pair.sender().fault());
}

// At first all slots can be in flight; later a batch of credits may hold some back.
TYPED_TEST_P(LinkConformance, OrderAndContentsUntilTheSlotsAreUsed) {
  for (const size_t slots : {1, 2, 3, 7, 8}) {
    constexpr size_t kBytes = 100;
    const size_t batch = TypeParam::CreditBatch(slots);
    TypeParam pair(kBytes, slots);
    auto& sender = pair.sender();
    auto& receiver = pair.receiver();
    uint32_t sent = 0, received = 0;
    for (int lap = 0; lap < 5; ++lap) {
      const size_t at_least = lap == 0 ? slots : slots - (batch - 1);
      while (sent - received < at_least || sender.BeginSend()) {
        sync::SendSlot slot;
        ASSERT_TRUE(Soon([&] { return static_cast<bool>(slot = sender.BeginSend()); }));
        EXPECT_EQ(slot.sequence, sent);
        EXPECT_EQ(sender.BeginSend().bytes, slot.bytes);  // the same slot until it is handed over
        FillFrame(slot.bytes, kBytes, sent++);
        sender.EndSend();
        ASSERT_LE(sent - received, slots);
      }
      while (received != sent) {
        sync::ReceivedFrame frame;
        ASSERT_TRUE(Soon([&] { return static_cast<bool>(frame = receiver.BeginReceive()); }));
        // the same frame until it is released
        EXPECT_EQ(receiver.BeginReceive().bytes, frame.bytes);
        EXPECT_EQ(frame.sequence, received);
        EXPECT_EQ(frame.size_bytes, kBytes);
        EXPECT_EQ(WrongBytes(frame.bytes, kBytes, received), 0u);
        // BeginReceive() does not release
        EXPECT_FALSE(sent - received == slots && sender.BeginSend());
        receiver.EndReceive();
        ++received;
        if (sent - received + batch <= slots) {
          // one slot is free again
          EXPECT_TRUE(Soon([&] { return static_cast<bool>(sender.BeginSend()); }));
        }
      }
      EXPECT_FALSE(receiver.BeginReceive());
    }
    EXPECT_FALSE(receiver.fault());
  }
}

TYPED_TEST_P(LinkConformance, AFrameNotEndedIsNotReceived) {
  TypeParam pair(8, 2);
  ASSERT_TRUE(pair.sender().BeginSend());
  EXPECT_FALSE(pair.receiver().BeginReceive());
  pair.sender().EndSend();
  EXPECT_TRUE(Soon([&] { return static_cast<bool>(pair.receiver().BeginReceive()); }));
}

// The size is what was given to EndSend(), at most a whole frame.
TYPED_TEST_P(LinkConformance, FramesShorterThanTheirSlots) {
  constexpr size_t kBytes = 300;
  TypeParam pair(kBytes, 4);
  uint32_t n = 0;
  for (const size_t bytes : {300, 299, 0, 1, 300, 64, 3, 0, 0, 150, 301, 1000, 2}) {
    const sync::SendSlot slot = pair.sender().BeginSend();
    ASSERT_TRUE(slot);
    FillFrame(slot.bytes, std::min(bytes, kBytes), n);
    pair.sender().EndSend(bytes);
    sync::ReceivedFrame frame;
    ASSERT_TRUE(Soon([&] { return static_cast<bool>(frame = pair.receiver().BeginReceive()); }));
    EXPECT_EQ(frame.size_bytes, std::min(bytes, kBytes));
    EXPECT_EQ(WrongBytes(frame.bytes, frame.size_bytes, n++), 0u);
    pair.receiver().EndReceive();
    ASSERT_TRUE(Soon([&] { return static_cast<bool>(pair.sender().BeginSend()); }));
  }
}

// Sizes around the borders of lines and pages: frames are aligned, do not overlap, and arrive
// whole.
TYPED_TEST_P(LinkConformance, FramesOfOddSizes) {
  for (const size_t bytes :
       {1, 3, 4, 63, 64, 65, 127, 128, 129, 191, 192, 193, 4095, 4096, 4097, 12289}) {
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
      sync::ReceivedFrame frame;
      ASSERT_TRUE(Soon([&] { return static_cast<bool>(frame = pair.receiver().BeginReceive()); }))
          << bytes;
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
    for (const size_t slots : {1, 3, 4}) {  // 3 does not divide 2^32: the slot is not number %
                                            // slots
      const uint32_t first = 0u - 5;
      TypeParam pair(64, slots, first);
      for (uint32_t n = first; n != 20; ++n) {
        sync::SendSlot slot;
        ASSERT_TRUE(Soon([&] { return static_cast<bool>(slot = pair.sender().BeginSend()); })) << n;
        EXPECT_EQ(slot.sequence, n);
        FillFrame(slot.bytes, 64, n);
        pair.sender().EndSend();
        if (slots > 1 && n == first) continue;  // from here on one more frame is in flight
        const uint32_t expected = slots > 1 ? n - 1 : n;
        sync::ReceivedFrame frame;
        ASSERT_TRUE(Soon([&] { return static_cast<bool>(frame = pair.receiver().BeginReceive()); }))
            << n;
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
      ASSERT_TRUE(Soon([&] { return static_cast<bool>(pair.receiver().BeginReceive()); }));
      pair.receiver().EndReceive();
    }
    ASSERT_TRUE(Soon([&] { return static_cast<bool>(pair.sender().BeginSend()); }));
    EXPECT_EQ(pair.sender().BeginSend().sequence, 3u);
    pair.SendNumbered(wrong);
    EXPECT_TRUE(Soon([&] { return !pair.receiver().BeginReceive() && pair.receiver().fault(); }))
        << wrong;
    EXPECT_EQ(pair.receiver().fault().code, sync::FaultCode::kSequence) << wrong;
    EXPECT_EQ(pair.receiver().fault().detail, wrong);
    EXPECT_TRUE(Soon([&] { return static_cast<bool>(pair.sender().fault()); })) << wrong;
    EXPECT_EQ(pair.sender().fault().code, sync::FaultCode::kSequence) << wrong;
    EXPECT_FALSE(pair.receiver().BeginReceive());
    EXPECT_FALSE(pair.sender().BeginSend());
  }
}

// A ping-pong whose every step waits, and a sender that is always ahead and waits for slots.
TYPED_TEST_P(LinkConformance, WaitingByEveryPolicy) {
  using Link = std::remove_reference_t<decltype(std::declval<TypeParam&>().sender())>;
  if constexpr (!Waits<Link>) {
    GTEST_SKIP() << "this link has no waits of its own";
  } else {
    for (const sync::WaitPolicy& policy : kConformanceWaits) {
      // few when spinning: each may cost a time slice
      const uint32_t rounds = policy.mode == sync::WaitPolicy::Mode::kSpin ? 5 : 200;
      TypeParam there(128, 1), back(128, 3);
      std::thread echo([&] {
        for (uint32_t n = 0; n < rounds && there.receiver().WaitReceive(policy); ++n) {
          const sync::ReceivedFrame frame = there.receiver().BeginReceive();
          if (!back.sender().WaitSend(policy)) return;
          std::memcpy(back.sender().BeginSend().bytes, frame.bytes, frame.size_bytes);
          back.sender().EndSend(frame.size_bytes);
          there.receiver().EndReceive();
        }
      });
      size_t wrong = 0;
      for (uint32_t n = 0; n < rounds; ++n) {
        if (!there.sender().WaitSend(policy)) break;
        FillFrame(there.sender().BeginSend().bytes, 128, n);
        there.sender().EndSend(FrameSize(n, 128));
        if (!back.receiver().WaitReceive(policy)) break;
        wrong += WrongInFrame(back.receiver().BeginReceive(), n, 128);
        back.receiver().EndReceive();
      }
      echo.join();
      EXPECT_EQ(wrong, 0u);
      EXPECT_FALSE(there.sender().fault());
      EXPECT_FALSE(back.sender().fault());

      TypeParam ahead(40, 2);
      std::thread sender([&] {
        for (uint32_t n = 0; n < rounds && ahead.sender().WaitSend(policy); ++n) {
          const size_t size_bytes = FrameSize(n, 40);
          FillFrame(ahead.sender().BeginSend().bytes, size_bytes, n);
          ahead.sender().EndSend(size_bytes);
        }
      });
      EXPECT_EQ(ReceiveFrames(ahead.receiver(), 0, rounds), 0u);
      sender.join();
    }
  }
}

// Fail(), at either end, while waits are about to sleep, asleep or spinning: a lost wake would hang
// this test.
TYPED_TEST_P(LinkConformance, FailEndsTheWaitsOfBothEnds) {
  using Link = std::remove_reference_t<decltype(std::declval<TypeParam&>().sender())>;
  if constexpr (!Waits<Link>) {
    GTEST_SKIP() << "this link has no waits of its own";
  } else {
    for (int round = 0; round < 10; ++round) {
      const sync::WaitPolicy& policy = kConformanceWaits[round == 9 ? 2 : 0];
      TypeParam empty(64, 1), full(64, 1);
      ASSERT_TRUE(full.sender().BeginSend());
      full.sender().EndSend();
      std::thread receiver([&] { EXPECT_FALSE(empty.receiver().WaitReceive(policy)); });
      std::thread sender([&] { EXPECT_FALSE(full.sender().WaitSend(policy)); });
      for (int i = 0; i < round * 20; ++i) std::this_thread::yield();
      (round % 2 == 0 ? empty.sender() : empty.receiver()).Fail(sync::FaultCode::kInternal, 5);
      (round % 2 == 0 ? full.receiver() : full.sender()).Fail(sync::FaultCode::kInternal, 5);
      receiver.join();
      sender.join();
      for (auto* end : {&empty.sender(), &empty.receiver(), &full.sender(), &full.receiver()}) {
        EXPECT_TRUE(Soon([&] { return static_cast<bool>(end->fault()); }));
        EXPECT_EQ(end->fault().code, sync::FaultCode::kInternal);
        EXPECT_EQ(end->fault().detail, 5u);
      }
    }
  }
}

TYPED_TEST_P(LinkConformance, StressTwoThreads) {
  constexpr uint32_t kFrames = TypeParam::kStressFrames;
  TypeParam pair(333, 4);
  std::thread sender([&] { SendFrames(pair.sender(), 0, kFrames); });
  EXPECT_EQ(ReceiveFrames(pair.receiver(), 0, kFrames), 0u);
  sender.join();
  EXPECT_FALSE(pair.receiver().fault())
      << FaultName(pair.receiver().fault().code) << ", " << pair.receiver().fault().detail;
}

// Eight threads, far more than the cores that a test machine is sure to have.
TYPED_TEST_P(LinkConformance, StressFourLinksOvercommitted) {
  constexpr uint32_t kFrames = TypeParam::kStressFrames / 8;
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
                            FramesShorterThanTheirSlots, FramesOfOddSizes, NumbersWrapAround,
                            AWrongNumberIsAStickyFaultThatBothEndsSee, WaitingByEveryPolicy,
                            FailEndsTheWaitsOfBothEnds, StressTwoThreads,
                            StressFourLinksOvercommitted);

}  // namespace larder::rdma::common
