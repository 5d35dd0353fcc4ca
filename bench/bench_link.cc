// Round trips over links, each as a ratio to the minimum of its transport, measured alternately
// with it:
//   bench_link shm
//     against a cache line's round trip and the copies between the cores
//   bench_link tcp [--sleep]
//     against a bare TCP_NODELAY ping-pong of the same size
//   bench_link verbs-server --host A --port P [--sleep], and on another machine or the same one
//   bench_link verbs-client --host A --port P [--sleep]
//     half round trips; bench/link_against_perftest compares
// Options: --bytes N,N (4096,12288), --slots N, --rounds N per repetition, --repetitions N.
// --sleep: completion events and poll(), for shared cores; otherwise both ends spin on cores of
// their own.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "bench/ratio.h"
#include "rdma/link/frame_link.h"
#include "sync/wait.h"
#include "topology/host.h"
#include "topology/probe.h"

namespace larder::bench {
namespace {

using rdma::FrameLink;
using rdma::LinkEndpoint;
using rdma::Transport;
using sync::WaitPolicy;

constexpr int kTimeoutMs = 20'000;

struct Options {
  std::string mode;
  std::string host;
  uint16_t port = 0;
  std::vector<size_t> bytes = {4096, 12288};
  size_t slots = 4;
  int rounds = 500;
  int repetitions = 21;
  bool sleep = false;
  WaitPolicy Wait() const {
    return sleep ? WaitPolicy{WaitPolicy::Mode::kAdaptive, 0}
                 : WaitPolicy{WaitPolicy::Mode::kSpin, 0};
  }
};

struct Duplex {
  FrameLink out, in;
};

// What both sides do with a frame. Over shared memory they copy it from and to private memory,
// which its limit includes; other transports use it in place, as the programs that they are
// compared with do.
bool Send(FrameLink& link, const std::vector<std::byte>& frame, const WaitPolicy& wait) {
  if (!link.WaitSend(wait)) return false;
  if (link.transport() == Transport::kSharedMemory) {
    std::memcpy(link.BeginSend().bytes, frame.data(), frame.size());
  }
  link.EndSend(frame.size());
  return true;
}
bool Receive(FrameLink& link, std::vector<std::byte>& frame, const WaitPolicy& wait) {
  if (!link.WaitReceive(wait)) return false;
  const sync::ReceivedFrame received = link.BeginReceive();
  if (link.transport() == Transport::kSharedMemory) {
    std::memcpy(frame.data(), received.bytes, received.size_bytes);
  }
  link.EndReceive();
  return true;
}

double Best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// The median time of a round in ns, with `ping` on the calling thread and `pong` on another, both
// pinned, after a warm-up. The median, since a few rounds take a scheduler's time slice if other
// programs run.
double RoundNs(int rounds, const std::function<void()>& ping, const std::function<void()>& pong) {
  const std::vector<CpuId> cpus = Cpus(2);
  const Pinned pinned(cpus[0]);
  const int warm_up = rounds / 10 + 1;
  std::thread other([&] {
    topology::PinThisThread(cpus[1]);
    for (int i = 0; i < warm_up + rounds; ++i) pong();
  });
  for (int i = 0; i < warm_up; ++i) ping();
  std::vector<double> ns;
  for (int i = 0; i < rounds; ++i) {
    const int64_t start_ns = NowNs();
    ping();
    ns.push_back(static_cast<double>(NowNs() - start_ns));
  }
  other.join();
  return Median(ns);
}

// Both directions of a link between two threads of this process.
struct LocalLinks {
  LocalLinks(Transport transport, const rdma::LinkShape& shape) {
    const size_t bytes = shape.frame_bytes;
    for (int i = 0; i < 2; ++i) {
      LinkEndpoint endpoint;
      endpoint.transport = transport;
      endpoint.name = fmt::format("bench-{}-{}-{}", getpid(), bytes, i);
      endpoint.host = "127.0.0.1";
      rdma::LinkListener listener(endpoint);
      endpoint.port = static_cast<uint16_t>(listener.port());
      std::thread connecting([&] {
        (i == 0 ? a.out : b.out) = ConnectLink(endpoint, shape, {0, "from", "bench"}, kTimeoutMs);
      });
      (i == 0 ? b.in : a.in) = listener.Accept(shape, {0, "to", "bench"}, kTimeoutMs);
      connecting.join();
    }
  }
  double RoundNs(int rounds, size_t bytes, const WaitPolicy& wait) {
    std::vector<std::byte> mine(bytes), theirs(bytes);
    return bench::RoundNs(
        rounds, [&] { Send(a.out, mine, wait) && Receive(a.in, mine, wait); },
        [&] { Receive(b.in, theirs, wait) && Send(b.out, theirs, wait); });
  }
  Duplex a, b;
};

// The same copies through two plain buffers with one flag each: a shared-memory link's data
// movement without the link.
double BareSharedNs(int rounds, size_t bytes) {
  struct Box {
    std::atomic<uint32_t>* full;
    std::byte* frame;
  };
  const size_t box_bytes = kFalseSharingBytes + RoundUp(bytes, kFalseSharingBytes);
  std::vector<std::byte> memory(2 * box_bytes + kFalseSharingBytes);
  auto* start = reinterpret_cast<std::byte*>(
      RoundUp(reinterpret_cast<uintptr_t>(memory.data()), kFalseSharingBytes));
  const auto box_at = [](std::byte* at) {
    return Box{new (at) std::atomic<uint32_t>(0), at + kFalseSharingBytes};
  };
  const Box there = box_at(start), back = box_at(start + box_bytes);
  std::vector<std::byte> mine(bytes), theirs(bytes);
  const auto put = [bytes](const Box& box, const std::byte* from, uint32_t n) {
    std::memcpy(box.frame, from, bytes);
    box.full->store(n, std::memory_order_release);
  };
  const auto take = [bytes](const Box& box, std::byte* to, uint32_t n) {
    while (box.full->load(std::memory_order_acquire) != n) sync::CpuPause();
    std::memcpy(to, box.frame, bytes);
  };
  uint32_t sent = 0, echoed = 0;
  return RoundNs(
      rounds,
      [&] {
        put(there, mine.data(), ++sent);
        take(back, mine.data(), sent);
      },
      [&] {
        take(there, theirs.data(), ++echoed);
        put(back, theirs.data(), echoed);
      });
}

// The time in ns to copy `bytes` bytes that the other core has just written.
double CopyNs(int rounds, size_t bytes) {
  std::vector<std::byte> shared(bytes), to(bytes);
  std::atomic<int> turn{0};
  std::vector<double> copying_ns;
  int asked = 0, filled = 0;
  RoundNs(
      rounds,
      [&] {
        turn.store(++asked * 2 - 1, std::memory_order_release);
        while (turn.load(std::memory_order_acquire) != asked * 2) sync::CpuPause();
        const int64_t start_ns = NowNs();
        std::memcpy(to.data(), shared.data(), bytes);
        copying_ns.push_back(static_cast<double>(NowNs() - start_ns));
      },
      [&] {
        ++filled;
        while (turn.load(std::memory_order_acquire) != filled * 2 - 1) sync::CpuPause();
        std::memset(shared.data(), filled, bytes);
        turn.store(filled * 2, std::memory_order_release);
      });
  return Median(copying_ns);
}

void BenchShared(const Options& options) {
  const std::vector<CpuId> cpus = Cpus(2);
  for (const size_t bytes : options.bytes) {
    LocalLinks links(Transport::kSharedMemory, {bytes, options.slots});
    std::vector<double> link, bare, line, copy;
    for (int i = 0; i < options.repetitions; ++i) {
      line.push_back(2 * topology::HandOverNs(cpus[0], cpus[1]));
      copy.push_back(2 * CopyNs(options.rounds, bytes));
      bare.push_back(BareSharedNs(options.rounds, bytes));
      link.push_back(links.RoundNs(options.rounds, bytes, options.Wait()));
    }
    const double least_ns = Median(line) + Median(copy);
    fmt::print(
        "shm   {:6} bytes  round trip {:7.0f} ns  cache line {:5.0f} + copies {:5.0f} ns: ratio "
        "{:.2f} (target 2; best of each {:.2f})  two bare buffers {:7.0f} ns: ratio {:.2f} (best "
        "{:.2f})\n",
        bytes, Median(link), Median(line), Median(copy), Median(link) / least_ns,
        Best(link) / (Best(line) + Best(copy)), Median(bare), Median(link) / Median(bare),
        Best(link) / Best(bare));
  }
}

class BareTcp {
 public:
  BareTcp() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    a_ = socket(AF_INET, SOCK_STREAM, 0);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener, any, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, any, &size) != 0 || connect(a_, any, size) != 0) {
      throw Error("bare TCP: no connection over the loopback device: {}", std::strerror(errno));
    }
    b_ = accept(listener, nullptr, nullptr);
    close(listener);
    for (const int end : {a_, b_}) {
      const int on = 1;
      setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
  }
  ~BareTcp() {
    close(a_);
    close(b_);
  }
  double RoundNs(int rounds, size_t bytes, bool sleep) {
    std::vector<std::byte> mine(bytes), theirs(bytes);
    return bench::RoundNs(
        rounds,
        [&] {
          Send(a_, mine);
          Receive(a_, mine, sleep);
        },
        [&] {
          Receive(b_, theirs, sleep);
          Send(b_, theirs);
        });
  }

 private:
  static void Send(int end, const std::vector<std::byte>& frame) {
    for (size_t sent = 0; sent < frame.size();) {
      const ssize_t now = send(end, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
      if (now > 0) sent += static_cast<size_t>(now);
    }
  }
  static void Receive(int end, std::vector<std::byte>& frame, bool sleep) {
    for (size_t received = 0; received < frame.size();) {
      const ssize_t now =
          recv(end, frame.data() + received, frame.size() - received, sleep ? 0 : MSG_DONTWAIT);
      if (now > 0) received += static_cast<size_t>(now);
    }
  }
  int a_ = -1, b_ = -1;
};

void BenchTcp(const Options& options) {
  for (const size_t bytes : options.bytes) {
    LocalLinks links(Transport::kTcp, {bytes, options.slots});
    BareTcp bare;
    std::vector<double> link, bare_ns;
    for (int i = 0; i < options.repetitions; ++i) {
      bare_ns.push_back(bare.RoundNs(options.rounds, bytes, options.sleep));
      link.push_back(links.RoundNs(options.rounds, bytes, options.Wait()));
    }
    fmt::print(
        "tcp   {:6} bytes  round trip {:7.1f} us  bare {:7.1f} us: ratio {:.2f} (target 1.3; best "
        "of each {:.2f})\n",
        bytes, Median(link) / 1e3, Median(bare_ns) / 1e3, Median(link) / Median(bare_ns),
        Best(link) / Best(bare_ns));
  }
}

// The server's port carries frames to the server, the next port those to the client. One size after
// the other.
void BenchVerbs(const Options& options, bool server) {
  LinkEndpoint to_server;
  to_server.transport = Transport::kVerbs;
  to_server.name = "bench-server";
  to_server.host = options.host;
  to_server.port = options.port;
  LinkEndpoint to_client = to_server;
  to_client.port = static_cast<uint16_t>(options.port + 1);
  const rdma::LinkIdentity identity = {0, server ? "server" : "client", "bench"};
  for (const size_t bytes : options.bytes) {
    const rdma::LinkShape shape = {bytes, options.slots};
    Duplex links;
    // A link carries frames from its connector to its listener, so the way back is a second link,
    // whose listener is the client.
    if (server) {
      rdma::LinkListener listener(to_server);
      links.in = listener.Accept(shape, identity, kTimeoutMs);
      to_client.host = links.in.peer().substr(links.in.peer().find('(') + 1);
      to_client.host = to_client.host.substr(0, to_client.host.rfind(':'));
      links.out = ConnectLink(to_client, shape, identity, kTimeoutMs);
    } else {
      LinkEndpoint own = to_client;
      own.host.clear();
      rdma::LinkListener listener(own);
      links.out = ConnectLink(to_server, shape, identity, kTimeoutMs);
      links.in = listener.Accept(shape, identity, kTimeoutMs);
    }
    const WaitPolicy wait = options.Wait();
    std::vector<std::byte> frame(bytes);
    std::vector<double> half_us;
    for (int i = 0; i < options.rounds; ++i) {
      const int64_t start_ns = NowNs();
      const bool good = server ? Receive(links.in, frame, wait) && Send(links.out, frame, wait)
                               : Send(links.out, frame, wait) && Receive(links.in, frame, wait);
      if (!good) throw Error("{}{}", links.in.FaultText(), links.out.FaultText());
      half_us.push_back(static_cast<double>(NowNs() - start_ns) / 2e3);
    }
    if (server) {  // wait until the client has its last frame
      links.in.WaitReceive({WaitPolicy::Mode::kAdaptive, 0});
      continue;
    }
    std::sort(half_us.begin(), half_us.end());
    fmt::print("verbs {:6} bytes  half round trip us: min {:.2f} median {:.2f} p99 {:.2f}  ({})\n",
               bytes, half_us.front(), Median(half_us), half_us[half_us.size() * 99 / 100],
               links.out.description());
    std::fflush(stdout);
  }
}

Options Parse(int argc, char** argv) {
  Options options;
  if (argc > 1) options.mode = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--sleep") {
      options.sleep = true;
      continue;
    }
    if (++i == argc) throw Error("{} needs a value", name);
    const std::string value = argv[i];
    if (name == "--host") {
      options.host = value;
    } else if (name == "--port") {
      options.port = static_cast<uint16_t>(std::atoi(value.c_str()));
    } else if (name == "--rounds") {
      options.rounds = std::max(1, std::atoi(value.c_str()));
    } else if (name == "--slots") {
      options.slots = std::strtoul(value.c_str(), nullptr, 10);
    } else if (name == "--repetitions") {
      options.repetitions = std::max(1, std::atoi(value.c_str()));
    } else if (name == "--bytes") {
      options.bytes.clear();
      for (size_t at = 0; at < value.size(); at = value.find(',', at) + 1) {
        options.bytes.push_back(std::strtoul(value.c_str() + at, nullptr, 10));
        if (value.find(',', at) == std::string::npos) break;
      }
    } else {
      throw Error("unknown option {}: the options are at the top of bench/bench_link.cc", name);
    }
  }
  return options;
}

int Main(int argc, char** argv) {
  try {
    const Options options = Parse(argc, argv);
    fmt::print("{}\n", topology::CpuName());
    if (options.mode == "shm") {
      BenchShared(options);
    } else if (options.mode == "tcp") {
      BenchTcp(options);
    } else if (options.mode == "verbs-server" || options.mode == "verbs-client") {
      BenchVerbs(options, options.mode == "verbs-server");
    } else {
      throw Error("bench_link shm | tcp | verbs-server | verbs-client [options]");
    }
  } catch (const Error& error) {
    fmt::print(stderr, "bench_link: {}\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) { return larder::bench::Main(argc, argv); }
