// The conformance suite over FrameLinks of every transport, made as a program makes them, and what making
// and losing them is like.
#include "rdma/frame_link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <iostream>
#include <string>
#include <thread>

#include "base/error.h"
#include "rdma/link_conformance.h"
#include "rdma/link_testing.h"

namespace larder::rdma {
namespace {

using sync::FaultCode;
using sync::WaitPolicy;

constexpr int kLongMs = 20000;  // a hang, not a timing
constexpr WaitPolicy kSleepAtOnce = {WaitPolicy::Mode::kAdaptive, 0};

// An address for tests of verbs; empty: there is no device. (Soft-RoCE does not work on the loopback device.)
const std::string& RdmaHost() {
  static const std::string host = RdmaAddress();
  return host;
}

LinkEndpoint Endpoint(Transport transport) {
  static std::atomic<int> count{0};
  LinkEndpoint endpoint;
  endpoint.transport = transport;
  endpoint.name = fmt::format("test-{}-{}", getpid(), ++count);
  endpoint.host = transport == Transport::kVerbs ? RdmaHost() : "127.0.0.1";
  return endpoint;
}
LinkIdentity Identity(const char* name, uint64_t plan_hash = 42) { return {plan_hash, name, "test"}; }

struct Ends {
  FrameLink sender, receiver;
};
Ends Join(LinkListener& listener, LinkEndpoint endpoint, const LinkShape& shape) {
  endpoint.port = static_cast<uint16_t>(listener.port());
  auto connecting =
      std::async(std::launch::async, [&] { return ConnectLink(endpoint, shape, Identity("from"), kLongMs); });
  FrameLink receiver = listener.Accept(shape, Identity("to"), kLongMs);
  return {connecting.get(), std::move(receiver)};
}
Ends Join(Transport transport, const LinkShape& shape) {
  const LinkEndpoint endpoint = Endpoint(transport);
  LinkListener listener(endpoint);
  return Join(listener, endpoint, shape);
}

template <Transport kTransport>
class FramePair {
 public:
  // soft-RoCE in an emulated guest, where verbs is tested, takes a millisecond a frame
  static constexpr uint32_t kStressFrames = kTransport == Transport::kVerbs ? 800 : 8000;
  static constexpr bool kAnyFirstSequence = kTransport != Transport::kSharedMemory;
  FramePair(size_t frame_bytes, size_t slots, uint32_t first_sequence = 0)
      : ends_(Join(kTransport, {frame_bytes, slots})) {
    if constexpr (kAnyFirstSequence) {
      LinkTesting::StartAt(ends_.sender, first_sequence);
      LinkTesting::StartAt(ends_.receiver, first_sequence);
    }
  }
  static const char* Missing() {
    if (kTransport != Transport::kVerbs || !RdmaHost().empty()) return nullptr;
    return "no RDMA device with an IPv4 address on this machine";
  }
  static size_t CreditBatch(size_t slots) {
    return kTransport == Transport::kSharedMemory ? 1 : CreditLimit(slots);
  }
  FrameLink& sender() { return ends_.sender; }
  FrameLink& receiver() { return ends_.receiver; }
  void SendNumbered(uint32_t number) { LinkTesting::SendNumbered(ends_.sender, number); }

 private:
  Ends ends_;
};

}  // namespace

INSTANTIATE_TYPED_TEST_SUITE_P(FrameShm, LinkConformance, FramePair<Transport::kSharedMemory>);
INSTANTIATE_TYPED_TEST_SUITE_P(FrameTcp, LinkConformance, FramePair<Transport::kTcp>);
INSTANTIATE_TYPED_TEST_SUITE_P(FrameVerbs, LinkConformance, FramePair<Transport::kVerbs>);

namespace {

template <typename Call>
std::string ErrorOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class FrameLinkOf : public testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    if (GetParam() == Transport::kVerbs && RdmaHost().empty()) {
      GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, FrameLinkOf,
                         testing::Values(Transport::kSharedMemory, Transport::kTcp, Transport::kVerbs),
                         [](const auto& transport) {
                           return transport.param == Transport::kSharedMemory ? "Shm"
                                  : transport.param == Transport::kTcp        ? "Tcp"
                                                                              : "Verbs";
                         });

TEST_P(FrameLinkOf, SaysWhatItIsAndWhoTheOtherEndIs) {
  const Ends ends = Join(GetParam(), {1000, 4});
  EXPECT_TRUE(Contains(ends.sender.peer(), "socket to (")) << ends.sender.peer();
  EXPECT_TRUE(Contains(ends.receiver.peer(), "socket from (")) << ends.receiver.peer();
  const std::string start = fmt::format("{}, 4 slots of 1000 bytes", TransportName(GetParam()));
  EXPECT_EQ(ends.sender.description().substr(0, start.size()), start);
  EXPECT_EQ(ends.sender.transport(), GetParam());
  EXPECT_EQ(ends.sender.FaultText(), "");
  std::cout << "  " << ends.receiver.description() << "\n";
}

TEST_P(FrameLinkOf, AnotherPlanIsOneLineAtBothEnds) {
  LinkEndpoint endpoint = Endpoint(GetParam());
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  auto connecting = std::async(std::launch::async, [&] {
    return ErrorOf([&] { ConnectLink(endpoint, {64, 2}, Identity("from", 0xaaaa), kLongMs); });
  });
  const std::string here = ErrorOf([&] { listener.Accept({64, 2}, Identity("to", 0xbbbb), kLongMs); });
  for (const std::string& line : {here, connecting.get()}) {
    EXPECT_TRUE(Contains(line, "aaaa")) << line;
    EXPECT_TRUE(Contains(line, "bbbb")) << line;
    EXPECT_TRUE(Contains(line, "different models or manifests") || Contains(line, "same model, manifest"))
        << line;
  }
}

TEST_P(FrameLinkOf, NobodyThereSaysWhatToStart) {
  LinkEndpoint endpoint = Endpoint(GetParam());
  {
    LinkListener listener(endpoint);
    endpoint.port = static_cast<uint16_t>(listener.port());
    const std::string line = ErrorOf([&] { listener.Accept({64, 2}, Identity("to"), 50); });
    EXPECT_TRUE(Contains(line, "start the")) << line;
  }
  const std::string line = ErrorOf([&] { ConnectLink(endpoint, {64, 2}, Identity("from"), 50); });
  EXPECT_TRUE(Contains(line, "start th")) << line;
  EXPECT_TRUE(Contains(line, endpoint.name)) << line;
}

// A stage that is restarted finds its neighbours again, as connector and as listener.
TEST_P(FrameLinkOf, TheListenerAcceptsAgainAfterTheLinkDied) {
  const LinkEndpoint endpoint = Endpoint(GetParam());
  LinkListener listener(endpoint);
  for (uint32_t life = 0; life < 3; ++life) {
    Ends ends = Join(listener, endpoint, {64, 2});
    FillFrame(ends.sender.BeginSend().bytes, 64, life);
    ends.sender.EndSend();
    ASSERT_TRUE(ends.receiver.WaitReceive(kSleepAtOnce));
    EXPECT_EQ(WrongBytes(ends.receiver.BeginReceive().bytes, 64, life), 0u);
    ends.sender = FrameLink();
    EXPECT_FALSE([&] {  // the frame that was looked at was the last
      ends.receiver.EndReceive();
      return ends.receiver.WaitReceive(kSleepAtOnce);
    }());
    EXPECT_EQ(ends.receiver.fault().code, FaultCode::kLinkDown);
    EXPECT_TRUE(Contains(ends.receiver.FaultText(), "socket from (")) << ends.receiver.FaultText();
    EXPECT_TRUE(Contains(ends.receiver.FaultText(), "link down: it")) << ends.receiver.FaultText();
  }
}

TEST_P(FrameLinkOf, TheReceiversEndEndsTheSendersWait) {
  Ends ends = Join(GetParam(), {64, 1});
  ends.sender.BeginSend();
  ends.sender.EndSend();
  std::thread waiting([&] { EXPECT_FALSE(ends.sender.WaitSend(kSleepAtOnce)); });
  ends.receiver = FrameLink();
  waiting.join();
  EXPECT_EQ(ends.sender.fault().code, FaultCode::kLinkDown);
}

// Frames that no buffer of the kernel holds: EndSend() returns nevertheless, and all arrive.
TEST_P(FrameLinkOf, ASenderNeverWaitsInEndSend) {
  constexpr size_t kBytes = size_t{2} << 20, kSlots = 6;
  Ends ends = Join(GetParam(), {kBytes, kSlots});
  for (uint32_t n = 0; n < kSlots; ++n) {
    const sync::SendSlot slot = ends.sender.BeginSend();
    ASSERT_TRUE(slot);
    FillFrame(slot.bytes, kBytes, n);
    ends.sender.EndSend();
  }
  for (uint32_t n = 0; n < kSlots; ++n) {
    ASSERT_TRUE(ends.receiver.WaitReceive(kSleepAtOnce)) << ends.receiver.FaultText();
    const sync::ReceivedFrame frame = ends.receiver.BeginReceive();
    EXPECT_EQ(frame.size_bytes, kBytes);
    EXPECT_EQ(WrongBytes(frame.bytes, kBytes, n), 0u);
    ends.receiver.EndReceive();
  }
}

// More than the connection takes at once, while the receiver reads: the helper and the sender take turns.
TEST_P(FrameLinkOf, LargeFramesStress) {
  constexpr size_t kBytes = 300'001;
  const uint32_t frames = GetParam() == Transport::kVerbs ? 20 : 200;
  Ends ends = Join(GetParam(), {kBytes, 3});
  std::thread sender([&] { SendFrames(ends.sender, 0, frames); });
  EXPECT_EQ(ReceiveFrames(ends.receiver, 0, frames), 0u);
  sender.join();
}

TEST(FrameLink, ImpossibleNamesAndShapesAreErrors) {
  const LinkEndpoint endpoint = Endpoint(Transport::kTcp);
  const std::string name(64, 'x');
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         ConnectLink(endpoint, {64, 1}, {1, name, "test"}, 10);
                       }),
                       "at most 63"));
  EXPECT_TRUE(Contains(ErrorOf([&] { ConnectLink(endpoint, {64, 1}, {1, "a", name}, 10); }), "at most 63"));
  EXPECT_TRUE(Contains(ErrorOf([&] { ConnectLink(endpoint, {0, 1}, Identity("a"), 10); }), "expected 1.."));
}

TEST(FrameLink, WithoutADeviceVerbsNamesTheAlternative) {
  if (!RdmaHost().empty()) GTEST_SKIP() << "this machine has an RDMA device";
  LinkEndpoint endpoint = Endpoint(Transport::kVerbs);
  endpoint.host = "127.0.0.1";
  for (const std::string& line : {ErrorOf([&] { LinkListener listener(endpoint); }), ErrorOf([&] {
                                    ConnectLink(endpoint, {64, 1}, Identity("from"), 10);
                                  })}) {
    EXPECT_TRUE(Contains(line, "no RDMA device")) << line;
    EXPECT_TRUE(Contains(line, "use transport tcp")) << line;
  }
}

TEST(FrameLinkVerbs, WrongDevicePortOrGidIsOneLineThatSaysWhatThereIs) {
  if (RdmaHost().empty()) GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
  LinkEndpoint endpoint = Endpoint(Transport::kVerbs);
  endpoint.device = "mlx9_9";
  std::string line = ErrorOf([&] { LinkListener listener(endpoint); });
  EXPECT_TRUE(Contains(line, "no RDMA device mlx9_9 here (there are: ")) << line;
  endpoint.device = line.substr(line.find("there are: ") + 11);
  endpoint.device = endpoint.device.substr(0, endpoint.device.find_first_of(",)"));
  EXPECT_EQ(ErrorOf([&] { LinkListener listener(endpoint); }), "no error");
  endpoint.gid_index = 200;
  line = ErrorOf([&] { LinkListener listener(endpoint); });
  EXPECT_TRUE(Contains(line, "has no RoCE v2 GID at index 200 (it has 0: ")) << line;
  endpoint.gid_index = -1;
  endpoint.device_port = 9;
  line = ErrorOf([&] { LinkListener listener(endpoint); });
  EXPECT_TRUE(Contains(line, "has no port 9")) << line;
  endpoint.device_port = 1;
  endpoint.host = "127.0.0.1";
  line = ErrorOf([&] { LinkListener listener(endpoint); });
  EXPECT_TRUE(Contains(line, "127.0.0.1 belongs to no RDMA device")) << line;
}

}  // namespace
}  // namespace larder::rdma
