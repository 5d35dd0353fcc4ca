#include "sync/link.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/error.h"
#include "sync/loopback_link_testing.h"

namespace larder::sync {
namespace {

struct NotALink {
  size_t frame_bytes() const { return 0; }
};
static_assert(Link<LoopbackLink>);
static_assert(!Link<NotALink>);

TEST(LoopbackLink, SendsInOrderUntilTheSlotsAreUsed) {
  LoopbackLink link(100, 3);
  EXPECT_EQ(link.frame_bytes(), 100u);
  EXPECT_EQ(link.slots(), 3u);
  EXPECT_FALSE(link.BeginReceive());
  uint32_t sent = 0, received = 0;
  for (int lap = 0; lap < 4; ++lap) {
    for (int i = 0; i < 3; ++i) {
      SendSlot slot = link.BeginSend();
      ASSERT_TRUE(slot);
      EXPECT_EQ(slot.sequence, sent);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(slot.bytes) % kCacheLineBytes, 0u);
      std::memset(slot.bytes, static_cast<int>(sent), 100);
      link.EndSend();
      ++sent;
    }
    EXPECT_FALSE(link.BeginSend());
    for (int i = 0; i < 3; ++i) {
      ReceivedFrame frame = link.BeginReceive();
      ASSERT_TRUE(frame);
      EXPECT_EQ(link.BeginReceive().bytes, frame.bytes);  // the same frame until it is released
      EXPECT_EQ(frame.sequence, received);
      EXPECT_EQ(frame.bytes[0], std::byte(received));
      EXPECT_EQ(frame.bytes[99], std::byte(received));
      link.EndReceive();
      ++received;
    }
    EXPECT_FALSE(link.BeginReceive());
  }
  EXPECT_FALSE(link.fault());
}

TEST(LoopbackLink, AFrameNotEndedIsNotReceived) {
  LoopbackLink link(8, 1);
  ASSERT_TRUE(link.BeginSend());
  EXPECT_FALSE(link.BeginReceive());
  link.EndSend();
  EXPECT_TRUE(link.BeginReceive());
  EXPECT_FALSE(link.BeginSend());  // still the receiver's
  link.EndReceive();
  EXPECT_TRUE(link.BeginSend());
}

// Sequence numbers are there to detect a sender that writes past its frame into the next slot's
// number.
TEST(LoopbackLink, AWrongSequenceNumberIsAStickyFault) {
  LoopbackLink link(64, 2);
  SendSlot first = link.BeginSend();
  std::byte* header = first.bytes - kCacheLineBytes;
  link.EndSend();
  const uint32_t wrong = 17;
  std::memcpy(header, &wrong, sizeof(wrong));
  EXPECT_FALSE(link.BeginReceive());
  EXPECT_EQ(link.fault().code, FaultCode::kSequence);
  EXPECT_EQ(link.fault().detail, 17u);
  EXPECT_FALSE(link.BeginSend());
  EXPECT_FALSE(link.BeginReceive());
}

TEST(LoopbackLink, ImpossibleSizesAreErrors) {
  EXPECT_THROW(LoopbackLink(0, 1), Error);
  EXPECT_THROW(LoopbackLink(1, 0), Error);
  EXPECT_THROW(LoopbackLink(size_t{1} << 40, 1), Error);
}

TEST(LoopbackLinkStress, TwoThreadsEveryFrameWholeAndInOrder) {
  constexpr uint32_t kFrames = 20000;
  LoopbackLink link(1024, 4);
  std::thread sender([&] {
    for (uint32_t n = 0; n < kFrames; ++n) {
      SendSlot slot = link.BeginSend();
      while (!slot) {
        std::this_thread::yield();
        slot = link.BeginSend();
      }
      auto* words = reinterpret_cast<uint32_t*>(slot.bytes);
      for (uint32_t i = 0; i < 256; ++i) words[i] = n * 257 + i;
      link.EndSend();
    }
  });
  uint32_t wrong = 0;
  for (uint32_t n = 0; n < kFrames; ++n) {
    ReceivedFrame frame = link.BeginReceive();
    while (!frame) {
      std::this_thread::yield();
      frame = link.BeginReceive();
    }
    wrong += frame.sequence != n;
    const auto* words = reinterpret_cast<const uint32_t*>(frame.bytes);
    for (uint32_t i = 0; i < 256; ++i) wrong += words[i] != n * 257 + i;
    link.EndReceive();
  }
  sender.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_FALSE(link.fault());
}

}  // namespace
}  // namespace larder::sync
