// The network's side of a session, over real connections: limits, turns, back pressure, exceptions,
// and the budget. The protocol is the test's own: lines, each answered by as many bytes as it asks
// for.
#include "serving/net/net_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace larder::serving::inline net {
namespace {

constexpr int kPatienceMs = 60'000;  // time limit for an expected event

// "N\n": N bytes. "throw\n": an exception. "\n": nothing, and not a request. One line per turn.
class LineSession : public Session {
 public:
  LineSession(Wire& wire, std::atomic<int>& answered) : wire_(wire), answered_(answered) {}
  void OnBytes(std::string_view bytes) override {
    input_ += bytes;
    if (!later_) OnTurn();
  }
  void OnTurn() override {
    later_ = false;
    const size_t end = input_.find('\n');
    if (end == std::string::npos || wire_.full()) return;
    const std::string line = input_.substr(0, end);
    input_.erase(0, end + 1);
    if (line == "throw") throw std::out_of_range("planted");
    if (line == "wait") {  // for an answer that does not come
      waits_ = true;
      return;
    }
    if (!line.empty()) {
      ++requests_;
      ++answered_;
      wire_.Write(std::string(std::stoul(line), 'x'));
    }
    later_ = true;
    wire_.Later();
  }
  void OnEndOfInput() override {
    if (waits_) return wire_.Write("end?\n");
    wire_.Close();
  }
  Turn turn() const override {
    return waits_ ? Turn::kAnswering : input_.empty() ? Turn::kIdle : Turn::kReceiving;
  }
  uint64_t requests() const override { return requests_; }
  bool wants_bytes() const override { return input_.size() < 1000; }
  size_t held_bytes() const override { return input_.size(); }
  void OnNoRoom(Scope) override { wire_.Write("no room\n"); }
  void OnTimeout() override { wire_.Write(turn() == Turn::kIdle ? "idle\n" : "slow\n"); }
  void OnQuiet() override { wire_.Write("still here\n"); }

 private:
  Wire& wire_;
  std::atomic<int>& answered_;
  std::string input_;
  uint64_t requests_ = 0;
  bool later_ = false, waits_ = false;
};

class TestClient {
 public:
  explicit TestClient(uint16_t port, const char* from = "127.0.0.1")
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own{}, server{};
    own.sin_family = server.sin_family = AF_INET;
    inet_pton(AF_INET, from, &own.sin_addr);
    inet_pton(AF_INET, "127.0.0.1", &server.sin_addr);
    server.sin_port = htons(port);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&server), sizeof server), 0);
  }
  TestClient(TestClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~TestClient() {
    if (fd_ >= 0) close(fd_);
  }
  bool Say(std::string_view bytes) const {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  void End() const { shutdown(fd_, SHUT_WR); }
  // Receives this many bytes, or fewer if the connection ends first.
  std::string Hear(size_t bytes) const {
    std::string all;
    char buffer[4096];
    while (all.size() < bytes) {
      if (!Readable(kPatienceMs)) return all + " and then nothing for a minute";
      const ssize_t n = recv(fd_, buffer, std::min(sizeof buffer, bytes - all.size()), 0);
      if (n <= 0) break;
      all.append(buffer, static_cast<size_t>(n));
    }
    return all;
  }
  bool Readable(int patience_ms) const {
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&ready, 1, patience_ms) == 1;
  }
  std::string HearAll() const { return Hear(SIZE_MAX); }

 private:
  int fd_;
};

class NetServerTest : public testing::Test {
 protected:
  void Start(ConnectionLimits limits = {}, AdmissionLimits admission = {}) {
    admission_ = std::make_unique<Admission>(admission);
    net_ = std::make_unique<NetServer>(*admission_, failures_);
    net_->BetweenTurns([this] { ++turns_; });
    port_ =
        net_->Listen({.port = 0,
                      .limits = limits,
                      .when_full = "full\n",
                      .when_peer_full = "your address is full\n",
                      .count_changed = [this](size_t open) { open_ = open; },
                      .turned_away = [this](int status) { turned_away_ = status; }},
                     [this](Wire& wire) { return std::make_unique<LineSession>(wire, answered_); });
    thread_ = std::thread([this] { net_->Run(); });
  }
  void TearDown() override {
    if (net_) net_->Stop();
    if (thread_.joinable()) thread_.join();
    net_ = nullptr;
    for (size_t r = 0; admission_ && r < kResources; ++r)
      EXPECT_EQ(admission_->used(static_cast<Resource>(r)), 0u)
          << ResourceName(static_cast<Resource>(r));
  }
  TestClient Served(const char* from = "127.0.0.1") {  // which is now idle
    TestClient client(port_, from);
    client.Say("1\n");
    EXPECT_EQ(client.Hear(1), "x");
    return client;
  }
  template <typename What>
  auto OnIo(What&& what) {
    std::promise<decltype(what())> result;
    net_->Post([&] { result.set_value(what()); });
    return result.get_future().get();
  }

  std::vector<std::string> said_;
  Failures failures_{[this](const std::string& line) { said_.push_back(line); }};
  std::atomic<int> answered_{0}, turns_{0}, turned_away_{0};
  std::atomic<size_t> open_{0};
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<NetServer> net_;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST_F(NetServerTest, ForANewcomerTheLongestIdleGoesAndNobodyWhoIsAtWork) {
  Start({.connections = 2});
  TestClient first = Served(), second = Served();
  TestClient third = Served();
  EXPECT_EQ(first.HearAll(), "");  // ended
  // One segment: when the "x" arrives, the half line is there too.
  second.Say("1\nhalf");
  third.Say("1\nhalf");
  EXPECT_EQ(second.Hear(1) + third.Hear(1), "xx");
  EXPECT_EQ(TestClient(port_).HearAll(), "full\n");
  EXPECT_EQ(turned_away_, 503);
  EXPECT_EQ(open_, 2u);
}

TEST_F(NetServerTest, AnAddressHasItsShareAndOthersTheirs) {
  AdmissionLimits limits;
  limits.connections.peer = 2;
  limits.loopback_is_a_peer = true;
  Start({}, limits);
  TestClient first = Served(), second = Served();
  TestClient third = Served();  // in place of the longest idle connection of its own address
  EXPECT_EQ(first.HearAll(), "");
  second.Say("1\nhalf");
  third.Say("1\nhalf");
  EXPECT_EQ(second.Hear(1) + third.Hear(1), "xx");
  EXPECT_EQ(TestClient(port_).HearAll(), "your address is full\n");
  EXPECT_EQ(turned_away_, 429);
  EXPECT_EQ(Served("127.0.0.2").Hear(0), "");
  EXPECT_EQ(admission_->refused(Resource::kConnections, Scope::kPeer), 1u);
}

TEST_F(NetServerTest, BytesThatAreNoRequestDoNotRenewTheTimeBetweenThem) {
  Start({.idle_s = 0.5});
  const TestClient client(port_);
  int said = 0;
  while (said < kPatienceMs / 20 && !client.Readable(20)) said += client.Say("\n");
  EXPECT_EQ(client.Hear(5), "idle\n") << "after " << said << " blank lines";
}

TEST_F(NetServerTest, WhoIsSlowIsTold) {
  Start({.receive_s = 0.2});
  const TestClient client(port_);
  client.Say("half a line");
  EXPECT_EQ(client.HearAll(), "slow\n");
}

TEST_F(NetServerTest, WhoWaitsForAnAnswerHearsThatItStillComes) {
  Start({.quiet_s = 0.2});
  const TestClient client(port_);
  client.Say("wait\n");
  EXPECT_EQ(client.Hear(22), "still here\nstill here\n");
}

// A client that closed its socket cannot be told from one that only sends no more, until it is
// sent something.
TEST_F(NetServerTest, WhoIsGoneBehindTheEndOfInputIsFound) {
  Start();
  {
    const TestClient stays(port_);
    stays.Say("wait\n");
    stays.End();
    EXPECT_EQ(stays.Hear(5), "end?\n");
    EXPECT_EQ(open_, 1u);
  }
  {
    const TestClient leaves(port_);
    leaves.Say("wait\n");
  }
  while (open_ > 0) usleep(1000);
}

TEST_F(NetServerTest, WhoTakesNothingIsAnsweredNoMore) {
  Start({.full_bytes = size_t{64} << 10});
  const TestClient client(port_);
  constexpr int kLines = 400, kBytes = 100'000;  // 40 MB: more than the kernel's buffers hold
  std::string lines;
  for (int i = 0; i < kLines; ++i) lines += std::to_string(kBytes) + "\n";
  std::thread sender([&] { client.Say(lines); });
  int before = -1;
  while (answered_ != before) {  // until it stops
    before = answered_;
    usleep(300'000);
  }
  EXPECT_LT(before, kLines);
  EXPECT_EQ(client.Hear(size_t{kLines} * kBytes).size(), size_t{kLines} * kBytes);
  EXPECT_EQ(answered_, kLines);
  sender.join();
}

TEST_F(NetServerTest, OthersHaveTheirTurnBetweenALine) {
  Start();
  const TestClient client(port_);
  client.Say("1\n1\n1\n1\n1\n1\n1\n1\n");
  EXPECT_EQ(client.Hear(8), "xxxxxxxx");
  EXPECT_GE(turns_, 8);
}

TEST_F(NetServerTest, AnExceptionEndsItsConnectionOnly) {
  Start();
  const TestClient good = Served(), bad = Served();
  bad.Say("throw\n");
  EXPECT_EQ(bad.HearAll(), "");
  good.Say("3\n");
  EXPECT_EQ(good.Hear(3), "xxx");
  EXPECT_EQ(failures_.count(), 1u);
  net_->Post([] { throw std::bad_alloc(); });
  OnIo([] { return 0; });
  EXPECT_EQ(failures_.count(), 2u);
  good.Say("3\n");
  EXPECT_EQ(good.Hear(3), "xxx");
  const auto said = OnIo([&] { return said_; });
  EXPECT_NE(said.at(0).find("planted"), std::string::npos);
}

TEST_F(NetServerTest, TooMuchIsSaid) {
  AdmissionLimits limits;
  limits.bytes.all = 300;
  limits.free_bytes = 100;
  Start({}, limits);
  const TestClient first(port_), second(port_), third = Served();
  first.Say(std::string(300, 'a'));
  while (OnIo([&] { return admission_->used(Resource::kBytes); }) < 300) usleep(1000);
  second.Say(std::string(200, 'b'));
  EXPECT_EQ(second.HearAll(), "no room\n");
  third.Say("2\n");  // it asks for few bytes
  EXPECT_EQ(third.Hear(2), "xx");
}

TEST_F(NetServerTest, WithoutDescriptorsTheLongestIdleGoes) {
  Start();
  const TestClient idle = Served();
  const int newcomer = socket(AF_INET, SOCK_STREAM, 0);
  const int filler = dup(newcomer);  // so that descriptor 0 is in use
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 1;  // what is open stays open
  setrlimit(RLIMIT_NOFILE, &none);
  sockaddr_in server{};
  server.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.0.1", &server.sin_addr);
  server.sin_port = htons(port_);
  EXPECT_EQ(connect(newcomer, reinterpret_cast<sockaddr*>(&server), sizeof server), 0);
  EXPECT_EQ(idle.HearAll(), "");  // ended: at the same limit of descriptors, the newcomer takes its
                                  // place
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(send(newcomer, "1\n", 2, MSG_NOSIGNAL), 2);
  char x = 0;
  EXPECT_EQ(recv(newcomer, &x, 1, 0), 1);
  EXPECT_EQ(x, 'x');
  close(filler);
  close(newcomer);
}

}  // namespace
}  // namespace larder::serving::net
