// TCP links between processes: what one sees when the other is killed or stopped, and across two
// network namespaces, whose link is then cut. Forked before this process has a thread;
// ThreadSanitizer does not follow a fork.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/common/farewell.h"
#include "rdma/common/fault_signal.h"
#include "rdma/common/link_conformance.h"
#include "rdma/link/frame_link.h"
#include "rdma/link/link_testing.h"
#include "rdma/shm/process_testing.h"
#include "rdma/tcp/link_monitor.h"

namespace larder::rdma::inline link {
namespace {

using sync::FaultCode;
using sync::WaitPolicy;

constexpr LinkShape kShape = {12288, 4};

int ExitStatus(pid_t pid) {
  const int status = WaitFor(pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

LinkEndpoint Endpoint(const std::string& host, int port) {
  LinkEndpoint endpoint;
  endpoint.transport = Transport::kTcp;
  endpoint.name = "to";
  endpoint.host = host;
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

class FrameLinkProcess : public testing::Test {
 protected:
  void SetUp() override { LARDER_SKIP_UNDER_TSAN(); }
};

// A sender that does what it is told after 50 frames, and a receiver that waits for more. Returns
// what the receiver saw.
sync::Fault AfterTheSender(int signal, const WaitPolicy& policy) {
  LinkListener listener(Endpoint("127.0.0.1", 0));
  const int port = listener.port();
  const pid_t child = Fork([port] {
    FrameLink link = ConnectLink(Endpoint("127.0.0.1", port), kShape, {7, "from", "test"}, kLongMs);
    SendFrames(link, 0, 50);
    for (;;) pause();
    return 0;
  });
  FrameLink link = listener.Accept(kShape, {7, "to", "test"}, kLongMs);
  EXPECT_EQ(ReceiveFrames(link, 0, 50), 0u);
  kill(child, signal);
  const int64_t start_ns = NowNs();
  EXPECT_FALSE(link.WaitReceive(policy));
  std::printf("  %.2f s after signal %d: %s\n", SecondsSince(start_ns), signal,
              link.FaultText().c_str());
  kill(child, SIGKILL);
  ExitStatus(child);
  return link.fault();
}

TEST_F(FrameLinkProcess, AKilledSenderIsAFault) {
  for (const WaitPolicy& policy : {kSleepAtOnce, kSpin}) {
    EXPECT_EQ(AfterTheSender(SIGKILL, policy).code, FaultCode::kLinkDown);
  }
}

TEST_F(FrameLinkProcess, AStoppedSenderIsAFault) {
  for (const WaitPolicy& policy : {kSleepAtOnce, kSpin}) {
    const sync::Fault fault = AfterTheSender(SIGSTOP, policy);
    EXPECT_EQ(fault.code, FaultCode::kLinkDown);
    EXPECT_EQ(fault.detail, static_cast<uint32_t>(LinkDown::kSilent));
  }
}

TEST_F(FrameLinkProcess, AProcessThatIsToldToEndSaysSo) {
  for (const Transport transport : {Transport::kSharedMemory, Transport::kTcp}) {
    LinkEndpoint endpoint = Endpoint("127.0.0.1", 0);
    endpoint.transport = transport;
    LinkListener listener(endpoint);
    endpoint.port = static_cast<uint16_t>(listener.port());
    const pid_t child = Fork([&endpoint] {
      FrameLink link = ConnectLink(endpoint, kShape, {7, "from", "test"}, kLongMs);
      SendFrames(link, 0, 50);
      SayFarewells();
      for (;;) pause();
      return 0;
    });
    FrameLink link = listener.Accept(kShape, {7, "to", "test"}, kLongMs);
    while (link.WaitReceive(kSleepAtOnce)) {
      if (link.BeginReceive()) link.EndReceive();
    }
    EXPECT_TRUE(WasStopped(link.fault())) << link.FaultText();
    EXPECT_NE(link.FaultText().find("it was stopped"), std::string::npos) << link.FaultText();
    kill(child, SIGKILL);
    ExitStatus(child);
  }
}

TEST_F(FrameLinkProcess, AStoppedOrKilledReceiverIsAFault) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    LinkListener listener(Endpoint("127.0.0.1", 0));
    const int port = listener.port();
    const pid_t child = Fork([&listener] {
      FrameLink link = listener.Accept(kShape, {7, "to", "test"}, kLongMs);
      if (ReceiveFrames(link, 0, 50) != 0) return 1;
      for (;;) pause();
      return 0;
    });
    FrameLink link = ConnectLink(Endpoint("127.0.0.1", port), kShape, {7, "from", "test"}, kLongMs);
    SendFrames(link, 0, 50);
    EXPECT_FALSE(link.fault());
    kill(child, signal);
    while (link.WaitSend(kSleepAtOnce))
      link.EndSend();  // until the ring is full, then until the fault
    EXPECT_EQ(link.fault().code, FaultCode::kLinkDown) << signal;
    kill(child, SIGKILL);
    ExitStatus(child);
  }
}

// Both ends of a link in this process, which may not register their rings. Returns whether the
// connector's Error says so.
int RefusalSays(const std::string& expected) {
  LinkEndpoint endpoint = Endpoint(RdmaAddress(), 0);
  endpoint.transport = Transport::kVerbs;
  LinkListener listener(endpoint);
  endpoint.port = static_cast<uint16_t>(listener.port());
  std::thread receiver([&] {
    try {
      listener.Accept({1 << 20, 4}, {7, "to", "test"}, 5000);
    } catch (const Error&) {
    }
  });
  std::string line;
  try {
    ConnectLink(endpoint, {1 << 20, 4}, {7, "from", "test"}, kLongMs);
  } catch (const Error& error) {
    line = error.what();
  }
  receiver.join();
  std::printf("  %s\n", line.c_str());
  return line.find(expected) != std::string::npos && line.find('\n') == std::string::npos ? 0 : 2;
}

// Root may lock any memory, so the child gives up that right before it makes a ring.
int WithoutLockableMemory() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (syscall(SYS_capget, &header, sets) != 0) return 1;
  sets[0].effective &= ~(1u << CAP_IPC_LOCK);
  const rlimit limit = {64 << 10, 64 << 10};
  if (syscall(SYS_capset, &header, sets) != 0 || setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 1;
  return RefusalSays("may lock 64 KB of memory: raise it (LimitMEMLOCK=infinity");
}

TEST_F(FrameLinkProcess, VerbsSaysHowToRaiseTheLimitOfLockedMemory) {
  if (RdmaAddress().empty()) GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
  EXPECT_EQ(ExitStatus(Fork(WithoutLockableMemory)), 0);
}

// A control group in which a process may have one object on each device: its protection domain, and
// no region.
const std::string kRdmaGroup = "/sys/fs/cgroup/larder-link-test";
bool MakeRdmaGroup() {
  std::ofstream("/sys/fs/cgroup/cgroup.subtree_control") << "+rdma";
  mkdir(kRdmaGroup.c_str(), 0755);
  std::ifstream devices(kRdmaGroup + "/rdma.current");  // a line for each: its name, then counts
  std::string line, name;
  for (bool any = false;; any = true) {
    if (!std::getline(devices, line)) return any;
    name = line.substr(0, line.find(' '));
    std::ofstream limits(kRdmaGroup + "/rdma.max");
    limits << name << " hca_object=2";
    if (!limits.flush()) return false;
  }
}

TEST_F(FrameLinkProcess, VerbsSaysThatTheDeviceRefusedTheRegistration) {
  if (RdmaAddress().empty()) GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
  if (!MakeRdmaGroup())
    GTEST_SKIP() << "no control group of RDMA can be made here (cgroup 2, root)";
  EXPECT_EQ(ExitStatus(Fork([] {
              std::ofstream group(kRdmaGroup + "/cgroup.procs");
              group << getpid();
              if (!group.flush()) return 1;
              return RefusalSays("refused to register the ring's 4096 KB: ");
            })),
            0);
  rmdir(kRdmaGroup.c_str());
}

bool Run(const std::string& command) {
  return std::system((command + " 2>/dev/null >&2").c_str()) == 0;
}

// Gives this process its own namespaces, as root or by a user namespace.
bool OwnNetwork() {
  const unsigned uid = getuid(), gid = getgid();
  if (unshare(CLONE_NEWNET) == 0) return true;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << gid << " 1";
  return true;
}

constexpr int kCannot = 77;

// The faults of the network between two namespaces, and what both ends must report.
enum class Fate {
  kCable,     // cut: no packet comes and nothing closes
  kBusyData,  // the second connection's packets are lost, while there are frames to send; the first
              // one lives
  kIdleData,  // the same, while there are no frames
};

// Makes a firewall forget a connection. Returns false if there is no firewall here.
bool LoseConnection(int fd) {
  sockaddr_in here = {}, there = {};
  socklen_t bytes = sizeof(here);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &bytes) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &bytes) != 0) return false;
  const int to = ntohs(there.sin_port), from = ntohs(here.sin_port);
  return Run(
      fmt::format("nft 'table inet t {{ chain o {{ type filter hook output priority 0; tcp sport "
                  "{} tcp dport {} drop; }}; chain i {{ type filter hook input priority 0; tcp "
                  "sport {} tcp dport {} drop; }}; }}'",
                  from, to, to, from));
}

// In a namespace of its own, with address 10.77.0.1 on v0; the other end of the cable, v1, is in
// the child's, with 10.77.0.2.
int TwoNamespaces(Fate fate) {
  int ready[2], go[2];
  if (!OwnNetwork() || pipe(ready) != 0 || pipe(go) != 0) return kCannot;
  char byte = 0;
  const pid_t child = Fork([&] {
    if (unshare(CLONE_NEWNET) != 0) return kCannot;
    char told = 1;
    if (write(ready[1], &told, 1) != 1 || read(go[0], &told, 1) != 1) return kCannot;
    if (!Run("ip addr add 10.77.0.2/24 dev v1 && ip link set v1 up")) return kCannot;
    FrameLink link = ConnectLink(Endpoint("10.77.0.1", 7411), kShape, {7, "from", "test"}, kLongMs);
    SendFrames(link, 0, 2000);
    while (link.WaitSend(kSleepAtOnce)) {
      if (fate == Fate::kIdleData) {
        if (link.fault()) break;
        usleep(1000);
      } else {
        link.EndSend(0);
      }
    }
    if (fate != Fate::kCable && link.fault().detail != static_cast<uint32_t>(LinkDown::kDataLost))
      return 5;
    return link.fault().code == FaultCode::kLinkDown ? 0 : 3;
  });
  close(ready[1]);
  const bool wired =
      read(ready[0], &byte, 1) == 1 &&
      Run(fmt::format(
          "ip link add v0 type veth peer name v1 netns {} && ip addr add 10.77.0.1/24 dev v0 && ip "
          "link set v0 up",
          child));
  if (!wired) {
    kill(child, SIGKILL);
    ExitStatus(child);
    return kCannot;
  }
  LinkListener listener(Endpoint("0.0.0.0", 7411));
  if (write(go[1], &byte, 1) != 1) return 4;
  FrameLink link = listener.Accept(kShape, {7, "to", "test"}, kLongMs);
  if (ReceiveFrames(link, 0, 2000) != 0) return 1;
  const bool done =
      fate == Fate::kCable ? Run("ip link set v0 down") : LoseConnection(LinkTesting::DataFd(link));
  if (!done) {
    kill(child, SIGKILL);
    ExitStatus(child);
    return kCannot;
  }
  uint32_t received = 0;
  while (link.WaitReceive(kSleepAtOnce)) {
    link.EndReceive();
    ++received;
  }
  std::printf("  %s, after %u frames more: %s\n", link.peer().c_str(), received,
              link.FaultText().c_str());
  if (link.fault().code != FaultCode::kLinkDown) return 2;
  return ExitStatus(child);
}

TEST_F(FrameLinkProcess, TwoNetworkNamespacesAndACutCable) {
  const int status = ExitStatus(Fork([] { return TwoNamespaces(Fate::kCable); }));
  if (status == kCannot)
    GTEST_SKIP() << "no network namespaces here (root or user namespaces, iproute2)";
  EXPECT_EQ(status, 0);
}

TEST_F(FrameLinkProcess, TwoNetworkNamespacesAndALostDataConnection) {
  for (const Fate fate : {Fate::kBusyData, Fate::kIdleData}) {
    const int status = ExitStatus(Fork([fate] { return TwoNamespaces(fate); }));
    if (status == kCannot)
      GTEST_SKIP() << "no network namespaces here (root or user namespaces, iproute2, nftables)";
    EXPECT_EQ(status, 0) << static_cast<int>(fate);
  }
}

// TCP_USER_TIMEOUT would also detect a lost connection, but it would end this one: like a stage
// that computes, its receiver reads nothing for longer than that, and its window is closed.
TEST_F(FrameLinkProcess, AReceiverThatLivesAndDoesNotReadIsNoFault) {
  constexpr LinkShape kLarge = {size_t{2} << 20, 6};
  LinkListener listener(Endpoint("127.0.0.1", 0));
  const int port = listener.port();
  const pid_t child = Fork([&] {
    FrameLink link = ConnectLink(Endpoint("127.0.0.1", port), kLarge, {7, "from", "test"}, kLongMs);
    SendFrames(link, 0, 8);
    while (!link.fault()) usleep(1000);
    return link.fault().detail == static_cast<uint32_t>(LinkDown::kEnded) ? 0 : 1;
  });
  {
    FrameLink link = listener.Accept(kLarge, {7, "to", "test"}, kLongMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * LinkMonitor::kLostMs / 2));
    EXPECT_EQ(ReceiveFrames(link, 0, 8), 0u) << link.FaultText();
  }
  EXPECT_EQ(ExitStatus(child), 0);
}

}  // namespace
}  // namespace larder::rdma::link
