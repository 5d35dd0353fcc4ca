// The conformance suite over LoopbackLink and ShmLink, and tests of ShmLink alone: attaching,
// waiting, failing.
#include "rdma/shm/shm_link.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/error.h"
#include "rdma/common/link_conformance.h"
#include "rdma/common/shared_memory.h"
#include "sync/loopback_link_testing.h"
#include "sync/wait_policies_testing.h"

namespace larder::rdma::inline shm {
namespace {

using sync::FaultCode;
using sync::kSleepAtOnce;
using sync::kSpin;
using sync::WaitPolicy;

// Both links keep a frame's number at the start of the cache line before the frame.
template <typename L>
void SendWithNumber(L& link, uint32_t number) {
  std::byte* frame = link.BeginSend().bytes;
  link.EndSend();
  std::memcpy(frame - kCacheLineBytes, &number, sizeof(number));
}

class LoopbackPair {
 public:
  static constexpr uint32_t kStressFrames = 10000;
  static constexpr bool kAnyFirstSequence = false;
  LoopbackPair(size_t frame_bytes, size_t slots) : link_(frame_bytes, slots) {}
  sync::LoopbackLink& sender() { return link_; }
  sync::LoopbackLink& receiver() { return link_; }
  void SendNumbered(uint32_t number) { SendWithNumber(link_, number); }
  static const char* Missing() { return nullptr; }
  static size_t CreditBatch(size_t) { return 1; }

 private:
  sync::LoopbackLink link_;
};

SharedMemory Formatted(const LinkShape& shape, uint32_t first_sequence = 0) {
  SharedMemory memory = SharedMemory::Create(ShmLink::RegionBytes(shape), "larder link test");
  ShmLink::Format(memory.span(), shape, first_sequence);
  return memory;
}

// With two mappings the two ends see the region at two addresses, as two processes do. With one
// mapping they are like two threads; only then does ThreadSanitizer, which goes by addresses, see
// that the ends share memory.
template <int kMappings>
class MappedPair {
 public:
  static constexpr uint32_t kStressFrames = 10000;
  static constexpr bool kAnyFirstSequence = true;
  MappedPair(size_t frame_bytes, size_t slots, uint32_t first_sequence = 0)
      : shape_{frame_bytes, slots},
        memory_(Formatted(shape_, first_sequence)),
        again_(SharedMemory::Attach(dup(memory_.fd()), ShmLink::RegionBytes(shape_))),
        sender_(memory_.span(), shape_, LinkSide::kSend),
        receiver_((kMappings == 2 ? again_ : memory_).span(), shape_, LinkSide::kReceive) {}
  ShmLink& sender() { return sender_; }
  ShmLink& receiver() { return receiver_; }
  void SendNumbered(uint32_t number) { SendWithNumber(sender_, number); }
  static const char* Missing() { return nullptr; }
  static size_t CreditBatch(size_t) { return 1; }
  ShmLinkHeader& header() { return *reinterpret_cast<ShmLinkHeader*>(memory_.data()); }

 private:
  LinkShape shape_;
  SharedMemory memory_;
  SharedMemory again_;
  ShmLink sender_;
  ShmLink receiver_;
};
using ShmPair = MappedPair<1>;
using TwoMappingsPair = MappedPair<2>;

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(Loopback, LinkConformance, LoopbackPair);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, LinkConformance, ShmPair);
INSTANTIATE_TYPED_TEST_SUITE_P(ShmTwoMappings, LinkConformance, TwoMappingsPair);

namespace {

TEST(ShmLink, TwoAddressesOfOneRegion) {
  TwoMappingsPair pair(64, 1);
  const sync::SendSlot slot = pair.sender().BeginSend();
  slot.bytes[5] = std::byte{42};
  pair.sender().EndSend();
  const sync::ReceivedFrame frame = pair.receiver().BeginReceive();
  ASSERT_TRUE(frame);
  EXPECT_NE(frame.bytes, slot.bytes);
  EXPECT_EQ(frame.bytes[5], std::byte{42});
}

TEST(ShmLink, ImpossibleShapesAreErrors) {
  EXPECT_THROW((ShmLink::RegionBytes({0, 1})), Error);
  EXPECT_THROW((ShmLink::RegionBytes({1, 0})), Error);
  EXPECT_THROW((ShmLink::RegionBytes({size_t{1} << 40, 1})), Error);
  EXPECT_THROW((ShmLink::RegionBytes({1, size_t{1} << 20})), Error);
  EXPECT_EQ((ShmLink::RegionBytes({64, 2})), sizeof(ShmLinkHeader) + 2 * 128);
}

std::string AttachError(std::span<std::byte> region, const LinkShape& shape,
                        LinkSide side = LinkSide::kReceive) {
  try {
    ShmLink link(region, shape, side);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ShmLink, AttachingChecksTheHeader) {
  const LinkShape shape{100, 4};
  SharedMemory memory = Formatted(shape);
  EXPECT_EQ(AttachError(memory.span(), shape), "no error");
  EXPECT_NE(AttachError(memory.span(), {100, 3}).find("4 slots of 100 bytes, expected 3 of 100"),
            std::string::npos);
  EXPECT_NE(AttachError(memory.span(), {99, 4}).find("expected 4 of 99"), std::string::npos);
  EXPECT_NE(AttachError(memory.span().first(ShmLink::RegionBytes(shape) - 1), shape)
                .find("the region has"),
            std::string::npos);

  auto& header = *reinterpret_cast<ShmLinkHeader*>(memory.data());
  ++header.version;
  EXPECT_NE(AttachError(memory.span(), shape).find("version"), std::string::npos);
  --header.version;
  header.magic = 0;
  EXPECT_NE(AttachError(memory.span(), shape).find("it was not formatted"), std::string::npos);
}

TEST(ShmLink, ARegionServesOneRun) {
  const LinkShape shape{100, 4};
  SharedMemory memory = Formatted(shape, 7);
  ShmLink sender(memory.span(), shape, LinkSide::kSend);
  ASSERT_TRUE(sender.BeginSend());
  sender.EndSend();
  EXPECT_NE(AttachError(memory.span(), shape, LinkSide::kSend).find("1 frames were sent"),
            std::string::npos);
  ShmLink receiver(memory.span(), shape, LinkSide::kReceive);  // a sender may be first
  EXPECT_EQ(receiver.BeginReceive().sequence, 7u);
  receiver.EndReceive();
  EXPECT_NE(AttachError(memory.span(), shape).find("1 frames were received"), std::string::npos);
}

// Counters that a link cannot have: more in flight than there are slots.
TEST(ShmLink, ImpossibleCountersAreFaults) {
  {
    ShmPair pair(64, 2);
    pair.header().sent.count.store(3);
    EXPECT_FALSE(pair.receiver().BeginReceive());
    EXPECT_EQ(pair.receiver().fault().code, FaultCode::kSequence);
  }
  ShmPair pair(64, 2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(pair.sender().BeginSend());
    pair.sender().EndSend();
  }
  pair.header().received.count.store(5);
  EXPECT_FALSE(pair.sender().WaitSend(kSleepAtOnce));
  EXPECT_EQ(pair.sender().fault().code, FaultCode::kSequence);
}

TEST(ShmLink, ALengthBeyondTheSlotIsAFault) {
  ShmPair pair(64, 2);
  std::byte* frame = pair.sender().BeginSend().bytes;
  pair.sender().EndSend(3);
  reinterpret_cast<ShmSlotHeader*>(frame - kCacheLineBytes)->size_bytes = 65;
  EXPECT_FALSE(pair.receiver().BeginReceive());
  EXPECT_EQ(pair.receiver().fault().code, FaultCode::kMalformed);
  EXPECT_EQ(pair.sender().fault().detail, 65u);
}

// After Fail() an end never takes the moved counter for frames, even though slot 0 of a fresh
// region holds the number that the receiver expects.
TEST(ShmLink, FailGivesNoFrame) {
  ShmPair pair(64, 2);
  pair.sender().Fail(FaultCode::kLinkDown, 9);
  EXPECT_FALSE(pair.receiver().BeginReceive());
  EXPECT_FALSE(pair.sender().BeginSend());
  // an end just before its futex call holds the old 0: both must have moved, or it would sleep for
  // ever (too narrow a window for FailEndsBothEndsWaits to hit), and a second Fail must not move
  // them back
  EXPECT_NE(pair.header().sent.count.load(), 0u);
  EXPECT_NE(pair.header().received.count.load(), 0u);
  pair.receiver().Fail(FaultCode::kTimeout);  // the first one stays
  EXPECT_NE(pair.header().sent.count.load(), 0u);
  EXPECT_NE(pair.header().received.count.load(), 0u);
  EXPECT_EQ(pair.receiver().fault().code, FaultCode::kLinkDown);
  EXPECT_EQ(pair.sender().fault().detail, 9u);
}

void WaitingPingPong(const WaitPolicy& policy, uint32_t rounds) {
  ShmPair there(128, 1), back(128, 1);
  std::thread echo([&] {
    for (uint32_t n = 0; n < rounds; ++n) {
      if (!there.receiver().WaitReceive(policy)) return;
      const sync::ReceivedFrame frame = there.receiver().BeginReceive();
      if (!back.sender().WaitSend(policy)) return;
      std::memcpy(back.sender().BeginSend().bytes, frame.bytes, 128);
      back.sender().EndSend();
      there.receiver().EndReceive();
    }
  });
  size_t wrong = 0;
  for (uint32_t n = 0; n < rounds; ++n) {
    if (!there.sender().WaitSend(policy)) break;
    FillFrame(there.sender().BeginSend().bytes, 128, n);
    there.sender().EndSend();
    if (!back.receiver().WaitReceive(policy)) break;
    wrong += WrongBytes(back.receiver().BeginReceive().bytes, 128, n);
    back.receiver().EndReceive();
  }
  echo.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_FALSE(there.sender().fault());
  EXPECT_FALSE(back.sender().fault());
}

TEST(ShmLinkStress, WaitingAsleepOnTheFutex) { WaitingPingPong(kSleepAtOnce, 3000); }
TEST(ShmLinkStress, WaitingAdaptive) {
  WaitingPingPong({WaitPolicy::Mode::kAdaptive, sync::SpinIterationsFor(2000)}, 3000);
}
TEST(ShmLinkStress, WaitingSpinning) {
  WaitingPingPong(kSpin, 20);
}  // few: each may cost a time slice

// A sender that is always ahead sleeps for slots; the receiver never does.
TEST(ShmLinkStress, TheSenderSleepsForSlots) {
  constexpr uint32_t kFrames = 3000;
  ShmPair pair(40, 2);
  std::thread sender([&] {
    for (uint32_t n = 0; n < kFrames && pair.sender().WaitSend(kSleepAtOnce); ++n) {
      FillFrame(pair.sender().BeginSend().bytes, 40, n);
      pair.sender().EndSend(FrameSize(n, 40));
    }
  });
  EXPECT_EQ(ReceiveFrames(pair.receiver(), 0, kFrames), 0u);
  sender.join();
}

// Fail() while an end is about to sleep, asleep or spinning: a lost wake would hang this test.
TEST(ShmLinkStress, FailEndsBothEndsWaits) {
  for (int round = 0; round < 200; ++round) {
    const WaitPolicy& policy = round % 50 == 49 ? kSpin : kSleepAtOnce;
    ShmPair empty(64, 1), full(64, 1);
    ASSERT_TRUE(full.sender().BeginSend());
    full.sender().EndSend();
    std::thread receiver([&] { EXPECT_FALSE(empty.receiver().WaitReceive(policy)); });
    std::thread sender([&] { EXPECT_FALSE(full.sender().WaitSend(policy)); });
    for (int i = 0; i < round % 7 * 20; ++i) std::this_thread::yield();
    empty.sender().Fail(FaultCode::kLinkDown);
    full.receiver().Fail(FaultCode::kLinkDown);
    receiver.join();
    sender.join();
  }
}

using ShmLinkDeathTest = testing::Test;
TEST(ShmLinkDeathTest, TheWrongSideIsABug) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  ShmPair pair(64, 1);
  EXPECT_DEATH(pair.receiver().BeginSend(), "a receiver does not send");
  EXPECT_DEATH(pair.sender().BeginReceive(), "a sender does not receive");
}

}  // namespace
}  // namespace larder::rdma::shm
