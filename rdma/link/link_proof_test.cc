// The proof that two ends know one key, and cases that must fail: replayed, reflected and changed
// bytes, a listener without the key. The listener is a LinkListener, the other side raw bytes.
#include "rdma/proof/link_proof.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "rdma/control/control_message.h"
#include "rdma/link/frame_link.h"
#include "rdma/link/link_checks_testing.h"
#include "rdma/link/link_setup.h"
#include "rdma/link/stranger_testing.h"

namespace larder::rdma::inline link {
namespace {

TEST(LinkProof, BothBelieveWhoHasTheKeyAndNobodyElse) {
  for (const auto& [connector, listener, kind, good] :
       {std::tuple(Key(1), Key(1), ConnectionKind::kTcp, true),
        {Key(1), Key(2), ConnectionKind::kTcp, false},
        {Key(1), Key(1), ConnectionKind::kVerbs, true}}) {
    Prover prover(*connector, kind);
    Verifier verifier;
    ASSERT_EQ(verifier.Meet(*listener, prover.greeting(), kind), "");
    ASSERT_EQ(prover.Meet(verifier.challenge()), "");
    EXPECT_EQ(verifier.Believes(prover.proof()), good);
    EXPECT_EQ(prover.Believes(verifier.proof()), good);
    EXPECT_NE(prover.proof(), verifier.proof());
    // Reflected: neither end accepts its own proof, nor the other's proof in its own place.
    EXPECT_FALSE(prover.Believes(prover.proof()));
    EXPECT_FALSE(verifier.Believes(verifier.proof()));
    WireHello hello;
    prover.session().Seal(kConnectorHello, hello);
    EXPECT_EQ(verifier.session().Sealed(kConnectorHello, &hello, sizeof(hello)), good);
    EXPECT_FALSE(verifier.session().Sealed(kListenerHello, &hello, sizeof(hello)));
    hello.slots ^= 1;
    EXPECT_FALSE(verifier.session().Sealed(kConnectorHello, &hello, sizeof(hello)));
    EXPECT_EQ(IsDataGreeting(verifier.session(), DataGreeting(prover.session())), good);
  }
  Verifier verifier;
  Prover prover(*Key(1), ConnectionKind::kTcp);
  EXPECT_NE(verifier.Meet(*Key(1), prover.greeting(), ConnectionKind::kShm), "");
  Greeting old = prover.greeting();
  old.version = kWireVersion - 1;
  EXPECT_TRUE(Contains(verifier.Meet(*Key(1), old, ConnectionKind::kTcp), "version"));
}

class LinkKeyFile : public testing::Test {
 protected:
  LinkKeyFile() {
    char name[] = "/tmp/larder-key-XXXXXX";
    close(mkstemp(name));
    path_ = name;
  }
  ~LinkKeyFile() override { unlink(path_.c_str()); }
  std::string Load(const std::string& text, mode_t mode = 0600, bool credential = false) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
    return ErrorOf([&] { LinkKey::Load(path_, credential); });
  }
  std::string path_;
};

TEST_F(LinkKeyFile, SixtyFourDigitsThatOnlyItsOwnerReads) {
  const std::string digits = "00112233445566778899aabbccddeeffFFEEDDCCBBAA99887766554433221100";
  EXPECT_EQ(Load(digits), "no error");
  EXPECT_EQ(Load(" \n" + digits + "\r\n"), "no error");
  const auto key = LinkKey::Load(path_);
  EXPECT_EQ(key->data()[1], 0x11);
  EXPECT_EQ(key->data()[16], 0xff);
  EXPECT_FALSE(key->open());
  for (const std::string& wrong :
       {std::string(), digits.substr(1), digits + "0", "x" + digits.substr(1),
        digits.substr(0, 32) + " " + digits.substr(32), std::string(5000, 'a')}) {
    EXPECT_TRUE(Contains(Load(wrong), "expected 64 hexadecimal digits")) << wrong;
  }
  EXPECT_TRUE(Contains(Load(std::string(64, '0')), "not a secret"));
  for (const mode_t mode : {0640, 0604, 0660}) {
    const std::string line = Load(digits, mode);
    EXPECT_TRUE(Contains(line, "others may read it")) << line;
    EXPECT_FALSE(Contains(line, digits.substr(0, 8))) << line;
    EXPECT_EQ(Load(digits, mode, true), "no error");
  }
  EXPECT_EQ(Load("\n", 0600, true), "no error");  // the unit's default: this server has no key
  EXPECT_EQ(LinkKey::Load(path_, /*credential=*/true), nullptr);
  EXPECT_TRUE(
      Contains(ErrorOf([] { LinkKey::Load("/nowhere/link.key"); }), "openssl rand -hex 32"));
  EXPECT_TRUE(Contains(ErrorOf([] { LinkKey::Load("/tmp", true); }), "is not a file"));
}

// A listener with a key, to which raw connections talk one at a time, until a right connector ends
// the test.
class LinkProofOf : public testing::TestWithParam<Transport> {
 protected:
  LinkProofOf() {
    endpoint_.transport = GetParam();
    endpoint_.name = fmt::format("proof-{}-{}", getpid(), static_cast<int>(GetParam()));
    if (GetParam() == Transport::kTcp) endpoint_.host = "127.0.0.1";
    listener_ = std::make_unique<LinkListener>(endpoint_);
    endpoint_.port = static_cast<uint16_t>(listener_->port());
    accepting_ = std::async(std::launch::async, [this] {
      return listener_->Accept({64, 2}, {42, "to", "test", 0, Key(7)}, kNoTimeout);
    });
  }
  // The listener is alive, has admitted no peer so far, and admits the right one.
  ~LinkProofOf() override {
    EXPECT_EQ(accepting_.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    const FrameLink right =
        ConnectLink(endpoint_, {64, 2}, {42, "from", "test", 0, Key(7)}, kLongMs);
    const FrameLink accepted = accepting_.get();
    EXPECT_FALSE(accepted.fault());
  }
  static bool Say(const Descriptor& fd, const void* bytes, size_t count) {
    return SendAll(fd, bytes, count, DeadlineNs(kLongMs));
  }
  template <typename Message>
  static bool Hear(const Descriptor& fd, Message& message) {
    return ReceiveAll(fd, &message, sizeof(message), DeadlineNs(kLongMs));
  }
  // The bytes that arrive until the connection closes.
  static size_t Rest(const Descriptor& fd) {
    char byte;
    size_t bytes = 0;
    while (ReceiveAll(fd, &byte, 1, DeadlineNs(kLongMs))) ++bytes;
    return bytes;
  }
  // The bytes of a good connector's hello, sealed by a session.
  std::vector<std::byte> Hello(const SessionKey& session) const {
    std::vector<std::byte> bytes;
    if (GetParam() == Transport::kSharedMemory) {
      Message message;
      message.hello.plan_hash = 42;
      message.hello.memory_bytes = ShmLink::RegionBytes({64, 2});
      session.Seal(kConnectorHello, message);
      bytes.resize(sizeof(message));
      std::memcpy(bytes.data(), &message, sizeof(message));
    } else {
      WireHello hello = MakeHello(endpoint_, {64, 2}, {42, "from", "test"});
      session.Seal(kConnectorHello, hello);
      bytes.resize(sizeof(hello));
      std::memcpy(bytes.data(), &hello, sizeof(hello));
    }
    return bytes;
  }

  LinkEndpoint endpoint_;
  std::unique_ptr<LinkListener> listener_;
  std::future<FrameLink> accepting_;
};
INSTANTIATE_TEST_SUITE_P(Transports, LinkProofOf,
                         testing::Values(Transport::kSharedMemory, Transport::kTcp),
                         [](const auto& transport) {
                           return std::string(TransportName(transport.param));
                         });

TEST_P(LinkProofOf, WithoutTheKeyAConnectorHearsANonceAndNothingMore) {
  const std::shared_ptr<const LinkKey> other = Key(8);
  for (const LinkKey* key : {&LinkKey::Open(), other.get()}) {
    Prover prover(*key, KindOfTransport(GetParam()));
    const Descriptor fd = ConnectRaw(endpoint_);
    Challenge challenge;
    ASSERT_TRUE(Say(fd, &prover.greeting(), sizeof(Greeting)) && Hear(fd, challenge));
    EXPECT_EQ(prover.Meet(challenge), "");
    EXPECT_TRUE(Say(fd, prover.proof().data(), kMacBytes));
    EXPECT_EQ(Rest(fd), 0u);
  }
}

TEST_P(LinkProofOf, ReplayedBytesOfAGoodConnectorDoNothing) {
  const auto key = Key(7);
  Prover prover(*key, KindOfTransport(GetParam()));
  Mac proof;
  {
    const Descriptor fd = ConnectRaw(endpoint_);
    Challenge challenge;
    ASSERT_TRUE(Say(fd, &prover.greeting(), sizeof(Greeting)) && Hear(fd, challenge));
    ASSERT_EQ(prover.Meet(challenge), "");
    ASSERT_TRUE(Say(fd, prover.proof().data(), kMacBytes) && Hear(fd, proof));  // it was right,
    EXPECT_TRUE(prover.Believes(proof));  // and leaves before its hello
  }
  const Descriptor fd = ConnectRaw(endpoint_);
  Challenge challenge;
  ASSERT_TRUE(Say(fd, &prover.greeting(), sizeof(Greeting)) && Hear(fd, challenge));
  const std::vector<std::byte> hello = Hello(prover.session());
  Say(fd, prover.proof().data(), kMacBytes);
  Say(fd, hello.data(), hello.size());
  EXPECT_EQ(Rest(fd), 0u);
}

// The listener's own proof, obtained by a peer that plays both parts at once, is not a connector's
// proof.
TEST_P(LinkProofOf, AReflectedChallengeDoesNothing) {
  const Descriptor one = ConnectRaw(endpoint_), other = ConnectRaw(endpoint_);
  Greeting greeting;
  greeting.kind = KindOfTransport(GetParam());
  Challenge first, second;
  ASSERT_TRUE(Say(one, &greeting, sizeof(greeting)) && Hear(one, first));
  std::copy(std::begin(first.nonce), std::end(first.nonce), greeting.nonce);
  ASSERT_TRUE(Say(other, &greeting, sizeof(greeting)) && Hear(other, second));
  Say(one, second.nonce, kMacBytes);
  EXPECT_EQ(Rest(one), 0u);
  Say(other, first.nonce, kMacBytes);
  EXPECT_EQ(Rest(other), 0u);
}

TEST_P(LinkProofOf, AHelloThatWasChangedOnTheWayDoesNothing) {
  const auto key = Key(7);
  for (const size_t at : {size_t{9}, size_t{40}, size_t{100}}) {
    Prover prover(*key, KindOfTransport(GetParam()));
    const Descriptor fd = ConnectRaw(endpoint_);
    Challenge challenge;
    Mac proof;
    ASSERT_TRUE(Say(fd, &prover.greeting(), sizeof(Greeting)) && Hear(fd, challenge));
    ASSERT_EQ(prover.Meet(challenge), "");
    ASSERT_TRUE(Say(fd, prover.proof().data(), kMacBytes) && Hear(fd, proof));
    std::vector<std::byte> hello = Hello(prover.session());
    hello[at] ^= std::byte{1};
    ASSERT_TRUE(Say(fd, hello.data(), hello.size()));
    EXPECT_EQ(Rest(fd), 0u);
  }
}

// A second connection without a session, and one of another session.
TEST_P(LinkProofOf, ASecondConnectionAloneDoesNothing) {
  const Descriptor fd = ConnectRaw(endpoint_);
  const Greeting greeting = DataGreeting(SessionKey());
  Say(fd, &greeting, sizeof(greeting));
  EXPECT_EQ(Rest(fd), 0u);
}

// A stranger that listens at the right address without the key, and sends arbitrary bytes: it gets
// a nonce and a proof for its own nonce, never a hello.
TEST(LinkProof, AListenerWithoutTheKeyLearnsNothing) {
  LinkEndpoint endpoint;
  endpoint.transport = Transport::kTcp;
  endpoint.name = "fake";
  endpoint.host = "127.0.0.1";
  const Descriptor listening = ListenTcp(endpoint.host, 0, "fake");
  endpoint.port = static_cast<uint16_t>(PortOf(listening));
  auto connecting = std::async(std::launch::async, [&] {
    std::string line;
    for (int ms = 300; ms <= kLongMs && !Contains(line, "impostor"); ms *= 3)
      line = ErrorOf([&] { ConnectLink(endpoint, {64, 2}, {42, "from", "test", 0, Key(7)}, ms); });
    return line;
  });
  size_t came = 0, heard = 0;
  while (connecting.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    const Descriptor fd(accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) continue;
    ++came;
    Greeting greeting;
    Mac proof;
    const int64_t deadline_ns = DeadlineNs(kLongMs);
    if (!ReceiveAll(fd, &greeting, sizeof(greeting), deadline_ns)) continue;
    // A made-up challenge, or the connector's own nonce back; then its own proof back.
    Challenge challenge;
    if (came % 2 == 0)
      std::copy(std::begin(greeting.nonce), std::end(greeting.nonce), challenge.nonce);
    SendAll(fd, &challenge, sizeof(challenge), deadline_ns);
    if (!ReceiveAll(fd, proof.data(), proof.size(), deadline_ns)) continue;
    SendAll(fd, proof.data(), proof.size(), deadline_ns);
    for (char byte; ReceiveAll(fd, &byte, 1, deadline_ns);) ++heard;
  }
  EXPECT_GT(came, 0u);
  EXPECT_EQ(heard, 0u);
  const std::string line = connecting.get();
  EXPECT_TRUE(Contains(line, "does not know the cluster's key: it is an impostor")) << line;
}

// Connections from elsewhere than the manifest says are closed before they are read.
TEST(LinkProof, AnotherHostThanTheManifestsIsNotLetIn) {
  LinkEndpoint endpoint;
  endpoint.transport = Transport::kTcp;
  endpoint.name = "to";
  endpoint.host = "127.0.0.1";
  endpoint.peer_host = "127.0.0.2";
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  auto accepting = std::async(std::launch::async, [&] {
    return listener.Accept({64, 2}, {42, "to", "test"}, kNoTimeout);
  });
  std::string line;
  for (int ms = 100; ms <= kLongMs && !Contains(line, "this server"); ms *= 3)
    line = ErrorOf([&] { ConnectLink(endpoint, {64, 2}, {42, "from", "test"}, ms); });
  EXPECT_TRUE(Contains(line, "may not expect this server")) << line;
  endpoint.own_host = "127.0.0.2";
  const FrameLink right = ConnectLink(endpoint, {64, 2}, {42, "from", "test"}, kLongMs);
  EXPECT_TRUE(Contains(accepting.get().peer(), "socket from (127.0.0.2:"));
}

// A peer that sends its hello and leaves before the link is made must not take the listener's time.
TEST(LinkProof, AConnectorThatEndsAfterItsHelloIsNotTheLast) {
  LinkEndpoint endpoint;
  endpoint.name = fmt::format("proof-left-{}", getpid());
  LinkListener listener(endpoint);
  auto accepting = std::async(std::launch::async, [&] {
    return listener.Accept({64, 2}, {42, "to", "test"}, kNoTimeout);
  });
  rdma::Hello hello;
  hello.plan_hash = 42;
  hello.memory_bytes = ShmLink::RegionBytes({64, 2});
  for (int i = 0; i < 3; ++i) ConnectHello("larder-link-" + endpoint.name, hello, kLongMs);
  const FrameLink right = ConnectLink(endpoint, {64, 2}, {42, "from", "test"}, kLongMs);
  EXPECT_TRUE(Contains(accepting.get().peer(), "socket from ("));
}

// Without descriptors for a connection the listener sleeps; it does not spin.
TEST(LinkGate, WithoutDescriptorsItSleeps) {
  const Descriptor listening = ListenTcp("127.0.0.1", 0, "full");
  std::string why;
  const auto port = static_cast<uint16_t>(PortOf(listening));
  const Descriptor came = TryConnectTcp("127.0.0.1", port, "", DeadlineNs(kLongMs), &why);
  ASSERT_TRUE(came) << why;
  LinkGate::Setup setup;
  setup.listener = listening.get();
  setup.key = &LinkKey::Open();
  setup.hello_bytes = sizeof(WireHello);
  setup.admit = [](const Descriptor&, std::string*) { return std::string(); };
  LinkGate gate(std::move(setup));
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {static_cast<rlim_t>(came.get()), before.rlim_max};
  timespec began = {}, ended = {};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
  const bool guest = gate.Next(DeadlineNs(500)).has_value();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(guest);
  EXPECT_TRUE(Contains(gate.last(), "no connection can be accepted")) << gate.last();
  const double used_s = static_cast<double>(ended.tv_sec - began.tv_sec) +
                        static_cast<double>(ended.tv_nsec - began.tv_nsec) * 1e-9;
  EXPECT_LT(used_s, 0.1);  // of 0.5 s, all of which a busy loop would use
}

}  // namespace
}  // namespace larder::rdma::link
