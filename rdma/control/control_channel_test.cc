// Both ends in one process, on two threads; processes are in rdma/shm/shm_process_test.cc.
#include "rdma/control/control_channel.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error_testing.h"
#include "rdma/common/fork_testing.h"
#include "rdma/control/control_message.h"
#include "rdma/control/peer_monitor.h"

namespace larder::rdma::inline control {
namespace {

Hello HelloOf(const std::string& socket, uint64_t plan_hash = 1, uint64_t memory_bytes = 4096) {
  Hello hello;
  hello.plan_hash = plan_hash;
  hello.memory_bytes = memory_bytes;
  hello.SetSocketName(socket);
  return hello;
}

struct Pair {
  explicit Pair(const std::string& channel_name = NewName())
      : name(channel_name),
        listener(name),
        there(Connect(name, kLongMs)),
        here(listener.Accept(kLongMs)) {}
  std::string name;
  ControlListener listener;
  ControlChannel there;
  ControlChannel here;
};

// The results of the two ends' ExchangeHello.
std::pair<std::string, std::string> Exchange(Pair& pair, const Hello& here, const Hello& there) {
  auto other = std::async(std::launch::async, [&] {
    return ErrorOf([&] { pair.there.ExchangeHello(there, kLongMs); });
  });
  const std::string mine = ErrorOf([&] { pair.here.ExchangeHello(here, kLongMs); });
  return {mine, other.get()};
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ControlChannel, SetsUpBothEnds) {
  Pair pair;
  EXPECT_EQ(pair.here.peer(), fmt::format("the peer on {} (pid {})", pair.name, getpid()));
  const auto [here, there] = Exchange(pair, HelloOf("weight0"), HelloOf("attention0"));
  EXPECT_EQ(here, "no error");
  EXPECT_EQ(there, "no error");
  EXPECT_EQ(pair.here.peer(), fmt::format("socket attention0 (pid {})", getpid()));
  EXPECT_EQ(pair.there.peer_name(), "weight0");

  SharedMemory memory = SharedMemory::Create(4096, "larder test");
  pair.here.SendMemory(memory);
  pair.here.Ready();
  SharedMemory received = pair.there.ReceiveMemory(4096, kLongMs);
  pair.there.Ready();
  pair.here.WaitReady(kLongMs);
  pair.there.WaitReady(kLongMs);
  memory.data()[77] = std::byte{5};
  EXPECT_EQ(received.data()[77], std::byte{5});
}

TEST(ControlChannel, AnotherPlanIsAnErrorOnBothEndsAndTheConnectorIsNotToldTheListeners) {
  Pair pair;
  const auto [here, there] =
      Exchange(pair, HelloOf("weight0", 0xaaaa1), HelloOf("attention0", 0xbbbb2));
  for (const std::string& error : {here, there}) {
    EXPECT_TRUE(Has(error, "00000000000bbbb2")) << error;
    EXPECT_TRUE(Has(error, "different models or manifests")) << error;
  }
  EXPECT_TRUE(Has(here, "00000000000aaaa1")) << here;
  EXPECT_FALSE(Has(there, "aaaa1")) << there;
  EXPECT_TRUE(Has(here, "socket attention0 (pid")) << here;
}

TEST(ControlChannel, AnotherVersionOrSizeOfMemoryIsAnError) {
  {
    Pair pair;
    Hello newer = HelloOf("attention0");
    newer.version = kHelloVersion + 1;
    const auto [here, there] = Exchange(pair, HelloOf("weight0"), newer);
    EXPECT_TRUE(Has(here, fmt::format("has version {}", kHelloVersion + 1))) << here;
    EXPECT_TRUE(Has(
        there, fmt::format("another version of the control channel than {}", kHelloVersion + 1)))
        << there;
  }
  Pair pair;
  const auto [here, there] =
      Exchange(pair, HelloOf("weight0", 1, 4096), HelloOf("attention0", 1, 8192));
  EXPECT_TRUE(Has(here, "expects 8192 bytes of shared memory, this process 4096")) << here;
  EXPECT_TRUE(Has(there, "refused: not 8192 bytes of shared memory")) << there;
}

TEST(ControlChannel, ReceivedMemoryOfAnotherSizeIsAnError) {
  Pair pair;
  pair.here.SendMemory(SharedMemory::Create(64 << 20, "larder test"));
  EXPECT_TRUE(Has(ErrorOf([&] { pair.there.ReceiveMemory(4096, kLongMs); }), "expected 4096"));
}

TEST(ControlChannel, ALateOrEndedOrConfusedPeerIsAnError) {
  Pair pair;
  EXPECT_TRUE(Has(ErrorOf([&] { pair.here.WaitReady(1); }), "sent no \"ready\" in 1 ms"));
  pair.there.Ready();
  EXPECT_TRUE(
      Has(ErrorOf([&] { pair.here.ReceiveMemory(1, kLongMs); }), "instead of its shared memory"));
  pair.there.Bye();
  EXPECT_TRUE(Has(ErrorOf([&] { pair.here.WaitReady(kLongMs); }), "ended before"));
  pair.there = ControlChannel();
  EXPECT_TRUE(Has(ErrorOf([&] { pair.here.WaitReady(kLongMs); }), "ended before"));
  EXPECT_TRUE(Has(ErrorOf([&] { pair.here.SendMemory(SharedMemory::Create(1, "larder test")); }),
                  "ended before"));
  pair.here.Ready();  // these two never fail
  pair.here.Bye();
}

TEST(ControlChannel, TheNameIsInUseByAPid) {
  const std::string name = NewName();
  {
    ControlListener listener(name);
    const std::string error = ErrorOf([&] { ControlListener again(name); });
    EXPECT_TRUE(Has(error, name)) << error;
    EXPECT_TRUE(Has(error, fmt::format("in use by pid {}", getpid()))) << error;
    ControlChannel there = Connect(name, kLongMs);  // asking did not take the peer's place
    EXPECT_EQ(listener.Accept(kLongMs).peer_pid(), getpid());
  }
  ControlListener free_again(name);
}

TEST(ControlChannel, OnePeerTooManyIsRefusedAndToldWhy) {
  Pair pair;
  for (int i = 0; i < 3; ++i) {
    ControlChannel second = Connect(pair.name, kLongMs);
    const std::string error =
        ErrorOf([&] { second.ExchangeHello(HelloOf("attention0"), kLongMs); });
    EXPECT_TRUE(Has(error, fmt::format("refused: it already has its 1 peer (pid {})", getpid())))
        << error;
  }
  EXPECT_TRUE(Has(ErrorOf([&] { pair.listener.Accept(0); }), "all of its 1 peers have connected"));
  // the first is well
  const auto [here, there] = Exchange(pair, HelloOf("weight0"), HelloOf("attention0"));
  EXPECT_EQ(here + there, "no errorno error");
}

TEST(ControlChannel, AListenerForTwo) {
  const std::string name = NewName();
  ControlListener listener(name, 2);
  ControlChannel first = Connect(name, kLongMs), second = Connect(name, kLongMs);
  ControlChannel to_first = listener.Accept(kLongMs), to_second = listener.Accept(kLongMs);
  first.Ready();
  to_first.WaitReady(kLongMs);
  second.Ready();
  to_second.WaitReady(kLongMs);
  ControlChannel third = Connect(name, kLongMs);
  EXPECT_TRUE(Has(ErrorOf([&] { third.WaitReady(kLongMs); }), "already has its 2 peers"));
}

TEST(ControlChannel, NobodyListensOrComes) {
  const std::string name = NewName();
  const std::string error = ErrorOf([&] { Connect(name, 30); });
  EXPECT_TRUE(Has(error, name)) << error;
  EXPECT_TRUE(Has(error, "start the process")) << error;
  ControlListener listener(name);
  EXPECT_TRUE(Has(ErrorOf([&] { listener.Accept(10); }), "0 of 1 peers connected in 10 ms"));
}

TEST(ControlChannel, ConnectWaitsForAListener) {
  const std::string name = NewName();
  auto connecting = std::async(std::launch::async, [&] { return Connect(name, kLongMs); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ControlListener listener(name);
  ControlChannel here = listener.Accept(kLongMs);
  connecting.get().Ready();
  here.WaitReady(kLongMs);
}

TEST(ControlChannel, ImpossibleNamesAreErrors) {
  EXPECT_THROW(ControlListener(""), Error);
  EXPECT_THROW(ControlListener(std::string(101, 'x')), Error);
  EXPECT_THROW(Connect(std::string(101, 'x'), 0), Error);
  EXPECT_THROW(ControlListener(NewName(), 0), Error);
  EXPECT_THROW(HelloOf(std::string(64, 'x')), Error);
  EXPECT_EQ(HelloOf(std::string(63, 'x')).socket_name[63], 0);
}

// Packets that Larder does not send, from a socket of the test.
TEST(ControlChannel, AnotherProgramIsAnError) {
  for (const size_t bytes : {1, 16, 271, 272, 273, 5000}) {
    const std::string name = NewName();
    ControlListener listener(name);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address = {AF_UNIX, {}};
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
    ControlChannel here = listener.Accept(kLongMs);
    const std::string garbage(bytes, '\x5a');
    ASSERT_EQ(send(fd, garbage.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    EXPECT_TRUE(Has(ErrorOf([&] { here.WaitReady(kLongMs); }), "another program")) << bytes;
    close(fd);
  }
}

struct Report {
  std::promise<std::pair<pid_t, PeerEnd>> promise;
  PeerLostHandler Callback() {
    return [this](pid_t pid, PeerEnd how) { promise.set_value({pid, how}); };
  }
  std::pair<pid_t, PeerEnd> Get() {
    auto future = promise.get_future();
    if (future.wait_for(std::chrono::milliseconds(kLongMs)) != std::future_status::ready)
      return {-1, PeerEnd::kGone};
    return future.get();
  }
};

TEST(PeerMonitor, ReportsACleanEndOnce) {
  Pair pair;
  Report report;
  PeerMonitor monitor(pair.here, report.Callback());
  EXPECT_FALSE(monitor.peer_ended());
  pair.there.Ready();  // late, and not an end
  pair.there.Bye();
  pair.there = ControlChannel();  // a second report would break the promise
  EXPECT_EQ(report.Get(), std::pair(getpid(), PeerEnd::kGoodbye));
  EXPECT_TRUE(monitor.peer_ended());
}

TEST(PeerMonitor, ReportsAnEndWithoutGoodbye) {
  Pair pair;
  Report report;
  PeerMonitor monitor(pair.here, report.Callback());
  pair.there = ControlChannel();
  EXPECT_EQ(report.Get(), std::pair(getpid(), PeerEnd::kGone));
  EXPECT_TRUE(monitor.peer_ended());
}

TEST(PeerMonitor, ReportsAPeerThatIsToldToEnd) {
  Pair pair;
  Report report;
  PeerMonitor monitor(pair.here, report.Callback());
  Message farewell;
  farewell.kind = MessageKind::kStopped;
  SendMessage(pair.there.fd(), farewell);
  EXPECT_EQ(report.Get(), std::pair(getpid(), PeerEnd::kStopped));
}

TEST(PeerMonitor, AfterItsOwnFarewellReportsNothing) {
  Pair pair;
  std::atomic<int> reports{0};
  {
    PeerMonitor monitor(pair.here, [&](pid_t, PeerEnd) { ++reports; });
    SayFarewells();
    pair.there = ControlChannel();
    while (!monitor.peer_ended()) std::this_thread::yield();
  }
  EXPECT_EQ(reports, 0);
}

// An end that is alive but sends no sign of life, like a stopped process.
TEST(PeerMonitor, ReportsSilence) {
  Pair pair;
  Report report;
  PeerMonitor monitor(pair.here, report.Callback());
  EXPECT_EQ(report.Get(), std::pair(getpid(), PeerEnd::kSilent));
}

TEST(PeerMonitor, TwoThatHaveNothingToSayKeepEachOtherQuietUnderLoad) {
  Pair pair;
  std::atomic<int> reports{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 8; ++i) {
    busy.emplace_back([&] {
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  }
  {
    PeerMonitor here(pair.here, [&](pid_t, PeerEnd) { ++reports; });
    PeerMonitor there(pair.there, [&](pid_t, PeerEnd) { ++reports; });
    std::this_thread::sleep_for(std::chrono::milliseconds(kSilenceMs * 5 / 4));
  }
  over = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_EQ(reports, 0);
}

// The thread that makes a monitor is the first of a pool and is pinned. The monitor's thread must
// not share its core if there is another.
TEST(PeerMonitor, RunsWhereTheProcessMayNotWhereItsMakerIsPinned) {
  cpu_set_t before, one, watch;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this process has one CPU only";
  CPU_ZERO(&one);
  for (size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  if (sched_setaffinity(0, sizeof(one), &one) != 0) GTEST_SKIP() << "affinity may not be set here";
  Pair pair;
  std::promise<cpu_set_t> mask;
  {
    PeerMonitor monitor(pair.here, [&](pid_t, PeerEnd) {
      cpu_set_t own;
      CPU_ZERO(&own);
      sched_getaffinity(0, sizeof(own), &own);
      mask.set_value(own);
    });
    sched_setaffinity(0, sizeof(before), &before);
    pair.there.Bye();
    watch = mask.get_future().get();
  }
  EXPECT_TRUE(CPU_EQUAL(&watch, &before));
}

TEST(PeerMonitor, StopsWatchingWhenDestroyed) {
  Pair pair;
  int reports = 0;
  {
    PeerMonitor monitor(pair.here, [&](pid_t, PeerEnd) { ++reports; });
  }
  pair.there = ControlChannel();
  EXPECT_EQ(reports, 0);
}

}  // namespace
}  // namespace larder::rdma::control
