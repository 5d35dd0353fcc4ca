// The conformance suite over FrameLinks of every transport, made as a program makes them, and tests
// of their set-up and loss.
#include "rdma/link/frame_link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "rdma/common/link_conformance.h"
#include "rdma/control/control_channel.h"
#include "rdma/link/link_checks_testing.h"
#include "rdma/link/link_testing.h"
#include "rdma/link/stranger_testing.h"
#include "sync/wait_policies_testing.h"

namespace larder::rdma::inline link {
namespace {

using sync::FaultCode;
using sync::kSleepAtOnce;
using sync::WaitPolicy;

// An address for tests of verbs; empty: there is no device. (Soft-RoCE does not work on the
// loopback device.)
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
LinkIdentity Identity(const char* name, uint64_t plan_hash = 42) {
  return {plan_hash, name, "test"};
}
LinkIdentity Keyed(LinkIdentity identity, const std::shared_ptr<const LinkKey>& key) {
  identity.key = key;
  return identity;
}

struct Ends {
  FrameLink sender, receiver;
};
Ends Join(LinkListener& listener, LinkEndpoint endpoint, const LinkShape& shape,
          const std::shared_ptr<const LinkKey>& key = {}) {
  endpoint.port = static_cast<uint16_t>(listener.port());
  auto connecting = std::async(std::launch::async, [&] {
    return ConnectLink(endpoint, shape, Keyed(Identity("from"), key), kLongMs);
  });
  FrameLink receiver = listener.Accept(shape, Keyed(Identity("to"), key), kLongMs);
  return {connecting.get(), std::move(receiver)};
}
Ends Join(Transport transport, const LinkShape& shape,
          const std::shared_ptr<const LinkKey>& key = {}) {
  const LinkEndpoint endpoint = Endpoint(transport);
  LinkListener listener(endpoint);
  return Join(listener, endpoint, shape, key);
}

template <Transport kTransport>
class FramePair {
 public:
  // soft-RoCE in an emulated guest, where verbs is tested, takes a millisecond per frame
  static constexpr uint32_t kStressFrames = kTransport == Transport::kVerbs ? 800 : 8000;
  static constexpr bool kAnyFirstSequence = kTransport != Transport::kSharedMemory;
  FramePair(size_t frame_bytes, size_t slots, uint32_t first_sequence = 0)
      : ends_(Join(kTransport, {frame_bytes, slots}, Key(7))) {
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

class FrameLinkOf : public testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    if (GetParam() == Transport::kVerbs && RdmaHost().empty()) {
      GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, FrameLinkOf,
                         testing::Values(Transport::kSharedMemory, Transport::kTcp,
                                         Transport::kVerbs),
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

TEST_P(FrameLinkOf, AConnectorOfAnotherSessionIsRefusedAndTheListenerGoesOn) {
  LinkEndpoint endpoint = Endpoint(GetParam());
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  const LinkShape shape{1000, 4};
  auto of_session = [](LinkIdentity identity, uint64_t session) {
    identity.session = session;
    return identity;
  };
  auto accepting = std::async(std::launch::async, [&] {
    return listener.Accept(shape, of_session(Identity("to"), 2), kLongMs);
  });
  for (const uint64_t session : {uint64_t{1}, uint64_t{0}, uint64_t{3}}) {
    const std::string error = ErrorOf(
        [&] { ConnectLink(endpoint, shape, of_session(Identity("from"), session), kLongMs); });
    EXPECT_TRUE(Contains(error, "begun another")) << session << ": " << error;
  }
  {
    const FrameLink sender = ConnectLink(endpoint, shape, of_session(Identity("from"), 2), kLongMs);
    const FrameLink receiver = accepting.get();
    EXPECT_EQ(sender.session(), 2u);
    EXPECT_EQ(receiver.session(), 2u);
    EXPECT_FALSE(receiver.fault());
  }
  // A listener without a session accepts any, and knows which one it got.
  auto any = std::async(std::launch::async,
                        [&] { return listener.Accept(shape, Identity("to"), kLongMs); });
  const FrameLink sender = ConnectLink(endpoint, shape, of_session(Identity("from"), 7), kLongMs);
  EXPECT_EQ(any.get().session(), 7u);
}

// Returns the errors of both ends; the listener keeps listening until it is told to stop.
std::pair<std::string, std::string> Disagree(Transport transport, const LinkIdentity& from,
                                             const LinkIdentity& to, const std::string& says = {}) {
  LinkEndpoint endpoint = Endpoint(transport);
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  auto accepting = std::async(std::launch::async, [&] {
    return ErrorOf([&] { listener.Accept({64, 2}, to, kNoTimeout); });
  });
  // The shortest time in which this machine reaches that line.
  std::string there;
  for (int ms = says.empty() ? kLongMs : 100;
       ms <= kLongMs && (there.empty() || !Contains(there, says)); ms *= 3)
    there = ErrorOf([&] { ConnectLink(endpoint, {64, 2}, from, ms); });
  // it goes on
  EXPECT_EQ(accepting.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  listener.Stop();
  return {accepting.get(), there};
}

TEST_P(FrameLinkOf, AnotherPlanIsOneLineAtBothEndsAndTheConnectorIsNotToldTheListeners) {
  for (const auto& key : {std::shared_ptr<const LinkKey>(), Key(7)}) {
    const auto [here, there] = Disagree(GetParam(), Keyed(Identity("from", 0xaaaa), key),
                                        Keyed(Identity("to", 0xbbbb), key));
    for (const std::string& line : {here, there}) {
      EXPECT_TRUE(Contains(line, "aaaa")) << line;
      EXPECT_TRUE(Contains(line, "different models or manifests") ||
                  Contains(line, "same model, manifest"))
          << line;
    }
    EXPECT_TRUE(Contains(here, "bbbb")) << here;
    EXPECT_FALSE(Contains(there, "bbbb")) << there;
  }
}

// A different key, or a key at only one end: no link is made, and the connector's line says which
// case it is.
TEST_P(FrameLinkOf, OnlyWhoHasTheKeyIsJoined) {
  const std::shared_ptr<const LinkKey> none;
  for (const auto& [from, to] :
       {std::pair(Key(1), Key(2)), std::pair(none, Key(2)), std::pair(Key(1), none)}) {
    const auto [here, there] =
        Disagree(GetParam(), Keyed(Identity("from"), from), Keyed(Identity("to"), to), "link.key");
    EXPECT_TRUE(
        Contains(there, from ? "which this process has one" : "which this process has none") ||
        Contains(there, from ? "this one has one" : "this one has none"))
        << there;
    EXPECT_TRUE(Contains(there, "link.key")) << there;
  }
}

// Set-up among strangers: they have no key, and are silent, slow, many, or repeat what they heard.
TEST_P(FrameLinkOf, ARingOfStrangersKeepsNobodyOut) {
  LinkEndpoint endpoint = Endpoint(GetParam());
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  Strangers strangers(endpoint);
  for (size_t life = 0; life < 3 || strangers.count() < 200; ++life) {
    Ends ends = Join(listener, endpoint, {64, 2}, Key(7));
    EXPECT_FALSE(ends.receiver.fault());
    EXPECT_TRUE(Contains(ends.receiver.peer(), "socket from (")) << ends.receiver.peer();
  }
}

// A connector may give up at any step; what it leaves behind must not end the listener.
TEST_P(FrameLinkOf, ConnectorsThatGiveUpInTheSetUpKeepNobodyOut) {
  LinkEndpoint endpoint = Endpoint(GetParam());
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  const LinkShape shape{64, 2};
  std::atomic<bool> stopped = false;
  auto accepting = std::async(std::launch::async, [&] {
    for (;;) {
      const std::string error =
          ErrorOf([&] { listener.Accept(shape, Identity("to"), kNoTimeout); });
      if (error != "no error") return stopped ? std::string("stopped") : error;
    }
  });
  for (int ms = 1; ms < 400; ms += 1 + ms / 4)
    ErrorOf([&] { ConnectLink(endpoint, shape, Identity("from"), ms); });
  EXPECT_EQ(ErrorOf([&] { ConnectLink(endpoint, shape, Identity("from"), kLongMs); }), "no error");
  stopped = true;
  listener.Stop();
  EXPECT_EQ(accepting.get(), "stopped");
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
    EXPECT_FALSE([&] {  // the frame that was received was the last
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

// Frames larger than the kernel's buffers: EndSend() returns nevertheless, and all arrive.
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

// More than the connection takes at once, while the receiver reads: helper thread and sender take
// turns.
TEST_P(FrameLinkOf, LargeFramesStress) {
  constexpr size_t kBytes = 300'001;
  const uint32_t frames = GetParam() == Transport::kVerbs ? 20 : 200;
  Ends ends = Join(GetParam(), {kBytes, 3});
  std::thread sender([&] { SendFrames(ends.sender, 0, frames); });
  EXPECT_EQ(ReceiveFrames(ends.receiver, 0, frames), 0u);
  sender.join();
}

// A peer that sends its hello, gets the region and then does nothing, like a process that is
// stopped there. (The test takes the seconds that a listener waits for it.)
TEST(FrameLinkShm, AConnectorThatStopsInTheSetUpDoesNotHoldTheListener) {
  const LinkEndpoint endpoint = Endpoint(Transport::kSharedMemory);
  const LinkShape shape{64, 2};
  LinkListener listener(endpoint);
  auto accepting = std::async(std::launch::async,
                              [&] { return listener.Accept(shape, Identity("to"), 3 * kLongMs); });
  Hello hello;
  hello.plan_hash = Identity("stopped").plan_hash;
  hello.memory_bytes = ShmLink::RegionBytes(shape);
  hello.SetSocketName("stopped");
  const ControlChannel stopped =
      ConnectHello("larder-link-" + endpoint.name, hello, kLongMs, LinkKey::Open());
  const FrameLink sender = ConnectLink(endpoint, shape, Identity("from"), 2 * kLongMs);
  const FrameLink receiver = accepting.get();
  EXPECT_TRUE(Contains(receiver.peer(), "socket from (")) << receiver.peer();
  EXPECT_FALSE(receiver.fault());
}

TEST(FrameLink, ImpossibleNamesAndShapesAreErrors) {
  const LinkEndpoint endpoint = Endpoint(Transport::kTcp);
  const std::string name(64, 'x');
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         ConnectLink(endpoint, {64, 1}, {1, name, "test"}, 10);
                       }),
                       "at most 63"));
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         ConnectLink(endpoint, {64, 1}, {1, "a", name}, 10);
                       }),
                       "at most 63"));
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         ConnectLink(endpoint, {0, 1}, Identity("a"), 10);
                       }),
                       "expected 1.."));
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
  endpoint.device.clear();
  endpoint.gid_index = 1;
  line = ErrorOf([&] { LinkListener listener(endpoint); });
  EXPECT_TRUE(Contains(line, "gid_index 1 without a device: name the device too (here: ")) << line;
  endpoint.gid_index = -1;
  endpoint.host = "127.0.0.1";
  line = ErrorOf([&] { LinkListener listener(endpoint); });
  EXPECT_TRUE(Contains(line, "127.0.0.1 belongs to no RDMA device")) << line;
  EXPECT_TRUE(Contains(line, "name one as device")) << line;
}

// The names that the message about a wrong one lists.
std::vector<std::string> Devices() {
  LinkEndpoint endpoint = Endpoint(Transport::kVerbs);
  endpoint.device = "none-of-that-name";
  const std::string line = ErrorOf([&] { LinkListener listener(endpoint); });
  std::vector<std::string> names;
  size_t at = line.find("there are: ") + 11;
  for (const size_t end = line.find(')', at); at < end;) {
    const size_t stop = std::min(end, line.find(", ", at));
    names.push_back(line.substr(at, stop - at));
    at = stop + 2;
  }
  return names;
}

size_t WrongFrames(Ends& ends, uint32_t frames) {
  std::thread sender([&] { SendFrames(ends.sender, 0, frames); });
  const size_t wrong = ReceiveFrames(ends.receiver, 0, frames);
  sender.join();
  return wrong;
}

constexpr const char* kOneDevice =
    "fewer than two RDMA devices with an IPv4 address on this machine";

// Both devices at once; the control connections of both use one address, which need not belong to
// either.
TEST(FrameLinkVerbs, EachLinkGoesOverTheDeviceThatItsEndsName) {
  if (RdmaHost().empty() || Devices().size() < 2) GTEST_SKIP() << kOneDevice;
  std::vector<Ends> links;
  for (const std::string& device : Devices()) {
    LinkEndpoint endpoint = Endpoint(Transport::kVerbs);
    endpoint.host = "127.0.0.1";
    endpoint.device = device;
    LinkListener listener(endpoint);
    links.push_back(Join(listener, endpoint, {5000, 3}));
    for (const FrameLink* end : {&links.back().sender, &links.back().receiver}) {
      EXPECT_TRUE(Contains(end->description(), device + " port 1, RoCE v2, GID "))
          << end->description();
      EXPECT_TRUE(Contains(end->description(), " ::ffff:" + RdmaAddress(device) + ","))
          << end->description();
    }
    std::cout << "  " << links.back().sender.description() << "\n";
  }
  for (Ends& ends : links) EXPECT_EQ(WrongFrames(ends, 50), 0u);
}

TEST(FrameLinkVerbs, TheGidIndexChoosesTheAddress) {
  if (RdmaHost().empty()) GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
  LinkEndpoint endpoint = Endpoint(Transport::kVerbs);
  endpoint.device = Devices().at(0);
  const std::string address = "::ffff:" + RdmaAddress(endpoint.device);
  // the message about an impossible one lists what there is: "0: fe80::... (RoCE v2), 1:
  // ::ffff:10.7.0.1 (...)"
  endpoint.gid_index = 200;
  const std::string line = ErrorOf([&] { LinkListener listener(endpoint); });
  int tried = 0;
  for (int index = 0; index < 8; ++index) {
    const size_t at = line.find(fmt::format("{}: ", index), line.find("(it has "));
    if (at == std::string::npos) break;
    const std::string gid = line.substr(at + 3, line.find(' ', at + 3) - at - 3);
    if (gid != address) continue;
    endpoint.gid_index = index;
    LinkListener listener(endpoint);
    Ends ends = Join(listener, endpoint, {500, 2});
    EXPECT_TRUE(Contains(ends.sender.description(), fmt::format("GID {} {},", index, gid)))
        << ends.sender.description();
    EXPECT_EQ(WrongFrames(ends, 10), 0u);
    ++tried;
  }
  EXPECT_GT(tried, 0) << line;
}

// A connector that names another device than its route takes.
TEST(FrameLinkVerbs, ADeviceThatDoesNotLeadToTheHostIsOneLine) {
  if (RdmaHost().empty() || Devices().size() < 2) GTEST_SKIP() << kOneDevice;
  LinkEndpoint endpoint = Endpoint(Transport::kVerbs);
  endpoint.device = Devices().at(0);
  endpoint.host = RdmaAddress(endpoint.device);
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  std::thread accepting([&] { ErrorOf([&] { listener.Accept({64, 2}, Identity("to"), 1500); }); });
  endpoint.device = Devices().at(1);
  const std::string line = ErrorOf([&] { ConnectLink(endpoint, {64, 2}, Identity("from"), 1000); });
  accepting.join();
  std::cout << "  " << line << "\n";
  const std::string says =
      fmt::format("device {} port 1 does not reach {} (are both ends' devices on one network?)",
                  endpoint.device, endpoint.host);
  EXPECT_TRUE(Contains(line, says)) << line;
}

int ActiveMtu(const std::string& description) {
  return std::atoi(description.substr(description.find(", MTU ") + 6).c_str());
}

TEST(FrameLinkVerbs, TheSmallerMtuOfTheEndsIsUsedAndShown) {
  if (RdmaHost().empty()) GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
  struct Case {
    int listener, connector, used;
  };
  const int active = ActiveMtu(Join(Transport::kVerbs, {64, 2}).sender.description());
  ASSERT_GE(active, 1024);
  for (const Case& mtu :
       {Case{0, 0, active}, {512, 0, 512}, {0, 512, 512}, {1024, 256, 256}, {256, 1024, 256}}) {
    LinkEndpoint endpoint = Endpoint(Transport::kVerbs);
    endpoint.mtu = mtu.listener;
    LinkListener listener(endpoint);
    endpoint.mtu = mtu.connector;
    Ends ends = Join(listener, endpoint, {3000, 3});
    EXPECT_EQ(ActiveMtu(ends.sender.description()), mtu.used) << ends.sender.description();
    EXPECT_EQ(ActiveMtu(ends.receiver.description()), mtu.used) << ends.receiver.description();
    EXPECT_EQ(WrongFrames(ends, 20), 0u);
  }
}

TEST(FrameLinkVerbs, AnMtuThatThePortDoesNotTakeIsOneLine) {
  if (RdmaHost().empty()) GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
  int refused = 0;
  for (const std::string& device : Devices()) {
    LinkEndpoint endpoint = Endpoint(Transport::kVerbs);
    endpoint.device = device;
    int active = 0;
    {
      LinkListener listener(endpoint);
      active = ActiveMtu(Join(listener, endpoint, {64, 2}).sender.description());
    }
    if (active >= 4096) continue;
    endpoint.mtu = 2 * active;
    const std::string says = fmt::format(
        "device {} port 1 has an active MTU of {} bytes, the manifest says {}: lower mtu in the "
        "manifest, or raise",
        device, active, 2 * active);
    const std::string line = ErrorOf([&] { LinkListener listener(endpoint); });
    EXPECT_TRUE(Contains(line, says)) << line;
    LinkEndpoint good = endpoint;
    good.mtu = active;
    LinkListener listener(good);
    endpoint.port = static_cast<uint16_t>(listener.port());
    std::thread accepting([&] {
      ErrorOf([&] { listener.Accept({64, 2}, Identity("to"), 1500); });
    });
    const std::string connecting = ErrorOf([&] {
      ConnectLink(endpoint, {64, 2}, Identity("from"), 1000);
    });
    accepting.join();
    EXPECT_TRUE(Contains(connecting, says)) << connecting;
    ++refused;
  }
  if (refused == 0) GTEST_SKIP() << "every RDMA device here takes an MTU of 4096";
}

}  // namespace
}  // namespace larder::rdma::link
