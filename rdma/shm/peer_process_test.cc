// What a process sees when the other one is gone, stopped, or stopped only for a moment.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/control/peer_monitor.h"
#include "rdma/shm/process_testing.h"

namespace larder::rdma::inline shm {
namespace {

constexpr int64_t kMsNs = 1'000'000;
constexpr Shape kShape = {{64, 2}};

// A child like `larder node`: it has no callback of its own, and its data path spins on a frame
// that will never come. Its standard error comes through a pipe.
class Node {
 public:
  explicit Node(const std::string& name) {
    int output[2];
    if (pipe2(output, O_CLOEXEC) != 0) return;
    output_ = Descriptor(output[0]);
    pid = Fork([&] {
      dup2(output[1], STDERR_FILENO);
      Side side = ConnectSide(name, kShape);
      PeerMonitor monitor(side.channel);
      side.in->WaitReceive(kSpin);
      return 1;
    });
    close(output[1]);
  }
  // After its end.
  std::string Said() const {
    char text[200] = {};
    const ssize_t bytes = read(output_.get(), text, sizeof(text) - 1);
    return {text, static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }
  pid_t pid = -1;

 private:
  Descriptor output_;
};

TEST(PeerProcess, AProgramWhosePeerIsGoneSaysSoAndExits75) {
  LARDER_SKIP_UNDER_TSAN();
  const std::string name = NewName();
  const Node node(name);
  { Side side = ListenSide(name, kShape); }  // ends without a goodbye, as a killed process would
  EXPECT_TRUE(Exited(WaitFor(node.pid), kPeerLostExitCode));
  // Noticed by its end, not by the following silence, for which the text would be "has not answered
  // for 2.0 s".
  EXPECT_EQ(node.Said(),
            fmt::format("larder: error: socket weight0 (pid {}) is gone; stopping\n", getpid()));
}

// The peer is a third process, so that it can be stopped: this one only watches.
TEST(PeerProcess, AProgramWhosePeerIsStoppedSaysSoAndExits75) {
  LARDER_SKIP_UNDER_TSAN();
  const std::string name = NewName();
  const Node node(name);
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t peer = Fork([&] {
    Side side = ListenSide(name, kShape);
    PeerMonitor monitor(side.channel);
    if (write(ready[1], "r", 1) != 1) return 1;
    pause();
    return 1;
  });
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const int64_t stopped_ns = NowNs();
  kill(peer, SIGSTOP);
  EXPECT_TRUE(Exited(WaitFor(node.pid), kPeerLostExitCode));
  EXPECT_GT(NowNs() - stopped_ns, (kSilenceMs - 2 * kAliveEveryMs) * kMsNs)
      << "it gave up too early";
  EXPECT_EQ(
      node.Said(),
      fmt::format("larder: error: socket weight0 (pid {}) has not answered for 2.0 s; stopping\n",
                  peer));
  // When it runs again, it finds that the other is gone, and ends as well.
  kill(peer, SIGCONT);
  EXPECT_TRUE(Exited(WaitFor(peer), kPeerLostExitCode));
  close(ready[0]);
  close(ready[1]);
}

// A stop of half of the limit, twice: neither the stopped process nor the other counts it as
// silence. A busy machine may make a stop longer than intended; it then proves nothing and is
// repeated.
TEST(PeerProcess, AProgramThatIsStoppedForAMomentGoesOn) {
  LARDER_SKIP_UNDER_TSAN();
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string name = NewName();
    const Node node(name);
    Side side = ListenSide(name, kShape);
    PeerMonitor monitor(side.channel, [](pid_t, PeerEnd) {});
    bool too_long = false;
    for (int i = 0; i < 2 && !too_long; ++i) {
      const int64_t start_ns = NowNs();
      kill(node.pid, SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(kSilenceMs / 2));
      kill(node.pid, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(kAliveEveryMs));
      too_long = NowNs() - start_ns > (kSilenceMs - kAliveEveryMs) * kMsNs;
      if (!too_long) {
        EXPECT_FALSE(monitor.peer_ended());
      }
    }
    if (too_long) {
      kill(node.pid, SIGKILL);
      WaitFor(node.pid);
      continue;
    }
    // It is still there: its data path spins on the link and ends with it.
    side.out->Fail(sync::FaultCode::kLinkDown);
    EXPECT_TRUE(Exited(WaitFor(node.pid), 1));
    return;
  }
  GTEST_SKIP() << "this machine is too busy to stop a process for only a second";
}

}  // namespace
}  // namespace larder::rdma::shm
