#include "rdma/proof/link_wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "rdma/common/link_conformance.h"
#include "rdma/link/frame_link.h"
#include "rdma/proof/tcp_connection.h"
#include "rdma/tcp/link_monitor.h"
#include "rdma/tcp/tcp_link.h"

namespace larder::rdma::inline link {
namespace {

using sync::FaultCode;

WireHello Hello(const char* name) {
  WireHello hello;
  hello.plan_hash = 5;
  hello.frame_bytes = 100;
  hello.slots = 4;
  SetText(hello.name, name);
  SetText(hello.cluster, "rack");
  return hello;
}

TEST(LinkWire, EqualHellosAgreeAndEachDifferenceIsNamed) {
  const WireHello mine = Hello("a");
  WireHello theirs = Hello("b");
  EXPECT_EQ(Disagreement(mine, theirs), "");
  const auto with = [&](auto change) {
    WireHello changed = theirs;
    change(changed);
    return Disagreement(mine, changed);
  };
  EXPECT_NE(with([](auto& h) { h.plan_hash = 6; }).find("same model"), std::string::npos);
  EXPECT_NE(with([](auto& h) { h.version = 9; }).find("version"), std::string::npos);
  EXPECT_NE(
      with([](auto& h) { h.frame_bytes = 99; }).find("4 slots of 100 bytes, socket b 4 of 99"),
      std::string::npos);
  EXPECT_NE(with([](auto& h) { h.slots = 3; }).find("3 of 100"), std::string::npos);
  EXPECT_NE(with([](auto& h) { h.transport = 2; }).find("transport"), std::string::npos);
  EXPECT_NE(with([](auto& h) { SetText(h.cluster, "other"); }).find("\"other\""),
            std::string::npos);
}

TEST(LinkWire, TextsWithoutAnEndOrWithControlBytesAreHarmless) {
  WireHello hello;
  std::memset(hello.name, 'x', sizeof(hello.name));
  EXPECT_EQ(Text(hello.name), std::string(64, 'x'));
  SetText(hello.name, std::string(100, 'y'));
  EXPECT_EQ(Text(hello.name), std::string(63, 'y'));
  SetText(hello.name, "a\x1b[31m\n");
  EXPECT_EQ(Text(hello.name), "a?[31m?");
}

TEST(LinkWire, FrameHeaders) {
  FrameHeader header;
  header.sequence = 7;
  header.size_bytes = 100;
  EXPECT_FALSE(CheckFrameHeader(header, 7, 100));
  EXPECT_EQ(CheckFrameHeader(header, 8, 100).code, FaultCode::kSequence);
  EXPECT_EQ(CheckFrameHeader(header, 7, 99).code, FaultCode::kMalformed);
  header.reserved = 1;
  EXPECT_EQ(CheckFrameHeader(header, 7, 100).code, FaultCode::kMalformed);
  header.reserved = 0;
  header.magic = 0;
  EXPECT_EQ(CheckFrameHeader(header, 7, 100).code, FaultCode::kMalformed);
}

TEST(LinkWire, BeatsOfUnknownFaultsAreALostLink) {
  WireBeat beat;
  beat.kind = BeatKind::kFault;
  beat.code = static_cast<uint32_t>(FaultCode::kInternal);
  beat.detail = 3;
  EXPECT_EQ(FaultOf(beat).code, FaultCode::kInternal);
  EXPECT_EQ(FaultOf(beat).detail, 3u);
  for (const uint32_t code : {0u, 1000u, 0xffff'ffffu}) {
    beat.code = code;
    EXPECT_EQ(FaultOf(beat).code, FaultCode::kLinkDown);
  }
  beat.kind = static_cast<BeatKind>(9);
  EXPECT_FALSE(IsBeat(beat));
}

// One end of a connection belongs to a link, the other to the test.
struct Wire {
  Wire() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    ours = Descriptor(fds[0]);
    theirs = Descriptor(fds[1]);
  }
  template <typename T>
  void Write(const T& value, size_t bytes = sizeof(T)) {
    EXPECT_EQ(write(ours.get(), &value, bytes), static_cast<ssize_t>(bytes));
  }
  Descriptor ours, theirs;
  FaultSignal fault;
};

TEST(LinkWire, ABadFrameHeaderEndsTheLinkBeforeItsBytesAreUsed) {
  Wire wire;
  TcpLink link(std::move(wire.theirs), {100, 4}, LinkSide::kReceive, wire.fault);
  FrameHeader header;
  header.size_bytes = 101;
  wire.Write(header);
  EXPECT_FALSE(link.BeginReceive());
  EXPECT_EQ(link.fault().code, FaultCode::kMalformed);
  EXPECT_EQ(link.fault().detail, 101u);
}

// Frames that arrive byte by byte, and several at once.
TEST(LinkWire, FramesInPiecesOfEverySize) {
  for (const size_t piece_bytes : {1, 2, 15, 16, 17, 31, 100, 500}) {
    Wire wire;
    TcpLink link(std::move(wire.theirs), {100, 4}, LinkSide::kReceive, wire.fault);
    std::vector<std::byte> stream;
    constexpr uint32_t kFrames = 30;
    for (uint32_t n = 0; n < kFrames; ++n) {
      FrameHeader header;
      header.sequence = n;
      header.size_bytes = static_cast<uint32_t>(FrameSize(n, 100));
      const size_t start = stream.size();
      stream.resize(start + sizeof(header) + header.size_bytes);
      std::memcpy(stream.data() + start, &header, sizeof(header));
      FillFrame(stream.data() + start + sizeof(header), header.size_bytes, n);
    }
    uint32_t n = 0;
    for (size_t at = 0; at < stream.size(); at += piece_bytes) {
      const size_t bytes = std::min(piece_bytes, stream.size() - at);
      ASSERT_EQ(write(wire.ours.get(), stream.data() + at, bytes), static_cast<ssize_t>(bytes));
      while (const sync::ReceivedFrame frame = link.BeginReceive()) {
        EXPECT_EQ(WrongInFrame(frame, n++, 100), 0u);
        link.EndReceive();
      }
    }
    EXPECT_EQ(n, kFrames) << piece_bytes;
    EXPECT_FALSE(link.fault());
  }
}

TEST(LinkWire, CreditsThatCannotBeAreFaults) {
  for (const uint32_t credit : {0u, 3u, 0xffff'ffffu}) {
    Wire wire;
    TcpLink link(std::move(wire.theirs), {100, 2}, LinkSide::kSend, wire.fault);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(link.BeginSend());
      link.EndSend();
    }
    wire.Write(credit);
    EXPECT_FALSE(link.BeginSend());
    EXPECT_EQ(link.fault().code, FaultCode::kMalformed) << credit;
  }
}

// Where this thread is held up for so long that a beat is late, its life proves nothing and is
// repeated.
TEST(LinkMonitor, SilenceIsAFaultAndLifeIsNot) {
  double longest_s = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    Wire wire;
    LinkMonitor monitor(std::move(wire.theirs), wire.fault);
    const int64_t start_ns = NowNs();
    longest_s = 0;
    // beats for longer than that
    while (SecondsSince(start_ns) < 1.2 * LinkMonitor::kSilentMs / 1000) {
      const int64_t beat_ns = NowNs();
      wire.Write(WireBeat{});
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      longest_s = std::max(longest_s, SecondsSince(beat_ns));
    }
    if (longest_s > 0.5 * LinkMonitor::kSilentMs / 1000) continue;
    EXPECT_FALSE(wire.fault.raised());
    EXPECT_TRUE(Soon([&] { return wire.fault.raised(); }));
    EXPECT_EQ(wire.fault.Read().code, FaultCode::kLinkDown);
    EXPECT_EQ(wire.fault.Read().detail, static_cast<uint32_t>(LinkDown::kSilent));
    return;
  }
  GTEST_SKIP() << "this machine is too busy: a beat was late by " << longest_s << " s";
}

TEST(LinkMonitor, AnythingButBeatsIsAFault) {
  Wire wire;
  LinkMonitor monitor(std::move(wire.theirs), wire.fault);
  WireBeat wrong;
  wrong.magic = 1;
  wire.Write(wrong, 7);  // in two pieces
  EXPECT_FALSE(wire.fault.raised());
  EXPECT_EQ(write(wire.ours.get(), reinterpret_cast<const char*>(&wrong) + 7, 9), 9);
  EXPECT_TRUE(Soon([&] { return wire.fault.raised(); }));
  EXPECT_EQ(wire.fault.Read().code, FaultCode::kMalformed);
}

// Beats without end, as fast as they are read: the monitor can still be ended, and its own beats go
// on.
TEST(LinkMonitor, AFloodOfBeatsKeepsItFromNothing) {
  Wire wire;
  std::atomic<bool> over{false};
  std::atomic<size_t> came{0};
  std::vector<WireBeat> beats(64);
  std::thread flood([&] {
    while (!over) {
      [[maybe_unused]] const ssize_t sent =
          send(wire.ours.get(), beats.data(), beats.size() * sizeof(WireBeat),
               MSG_NOSIGNAL | MSG_DONTWAIT);
      WireBeat beat;
      if (recv(wire.ours.get(), &beat, sizeof(beat), MSG_DONTWAIT) == sizeof(beat)) ++came;
    }
  });
  {
    LinkMonitor monitor(std::move(wire.theirs), wire.fault);
    EXPECT_TRUE(Soon([&] { return came >= 2; }));
  }
  EXPECT_FALSE(wire.fault.raised());
  over = true;
  flood.join();
}

LinkEndpoint ListenerEndpoint() {
  LinkEndpoint endpoint;
  endpoint.transport = Transport::kTcp;
  endpoint.name = "to";
  endpoint.host = "127.0.0.1";
  return endpoint;
}

// A port scanner, another program and a connector that gave up come before the real one.
TEST(LinkListener, StrangersDoNotKeepItFromItsPeer) {
  LinkEndpoint endpoint = ListenerEndpoint();
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  std::string why;
  const int64_t deadline_ns = DeadlineNs(20000);
  Descriptor scanner = TryConnectTcp(endpoint.host, endpoint.port, "", deadline_ns, &why);
  scanner.Reset();
  Descriptor other = TryConnectTcp(endpoint.host, endpoint.port, "", deadline_ns, &why);
  const std::string text(sizeof(WireHello), 'G');
  ASSERT_TRUE(SendAll(other, text.data(), text.size(), deadline_ns));
  Descriptor lost = TryConnectTcp(endpoint.host, endpoint.port, "", deadline_ns, &why);
  WireHello hello = Hello("lost");
  hello.transport = static_cast<uint32_t>(Transport::kTcp);
  ASSERT_TRUE(SendAll(lost, &hello, sizeof(hello), deadline_ns));
  lost.Reset();
  // Its end of the link lives as long as the listener's: a connector that leaves at once counts as
  // a stranger.
  std::future<FrameLink> real = std::async(std::launch::async, [&] {
    return ConnectLink(endpoint, {100, 4}, {5, "real", "rack"}, 20000);
  });
  const FrameLink link = listener.Accept({100, 4}, {5, "to", "rack"}, 20000);
  EXPECT_NE(link.peer().find("socket real ("), std::string::npos) << link.peer();
  EXPECT_FALSE(real.get().fault());
}

}  // namespace
}  // namespace larder::rdma::link
