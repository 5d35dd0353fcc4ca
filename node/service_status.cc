#include "node/service_status.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"

namespace larder::node {
namespace {

constexpr size_t kMaxAnswerBytes = 64 << 10;

struct Address {
  sockaddr_un value = {};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};

// False if the name does not fit. Abstract: the path's first byte is zero, nothing lies in the file system.
bool MakeAddress(const std::string& name, Address* address) {
  if (name.size() + 1 > sizeof(address->value.sun_path)) return false;
  address->value.sun_family = AF_UNIX;
  std::memcpy(address->value.sun_path + 1, name.data(), name.size());
  address->bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return true;
}

double Ratio(uint64_t a, uint64_t b) {
  return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
}

// Waits until fd is ready; false when the deadline has passed.
bool WaitFor(int fd, short events, int64_t deadline_ns) {
  for (;;) {
    const int64_t left_ms = (deadline_ns - NowNs()) / 1'000'000;
    if (left_ms <= 0) return false;
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(left_ms));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

std::string StatusName(const std::string& cluster, const std::string& socket) {
  return fmt::format("{}{}/{}", kStatusPrefix, cluster, socket);
}

nlohmann::json StatusJson(const SocketFacts& facts, const pipeline::SocketStatus& status,
                          int64_t started_ns) {
  auto load = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  const uint64_t frames = load(status.frames_finished);
  const uint64_t step = load(status.step_ns), wait = load(status.wait_ns), link = load(status.link_ns);
  const auto state = static_cast<pipeline::SocketState>(status.state.load(std::memory_order_relaxed));
  std::string layers;
  if (facts.layers != 0)
    layers = fmt::format("{}-{}", facts.first_layer, facts.first_layer + facts.layers - 1);
  return {{"cluster", facts.cluster},
          {"socket", facts.socket},
          {"role", facts.role},
          {"layers", layers},
          {"slots", facts.slots},
          {"weight_mb", static_cast<double>(std::max(facts.weight_bytes, load(status.weight_bytes))) * 1e-6},
          {"kv_mb", static_cast<double>(facts.kv_bytes) * 1e-6},
          {"state", pipeline::SocketStateName(state)},
          {"frames_started", load(status.frames_started)},
          {"frames", frames},
          {"rows", load(status.rows)},
          {"step_us", Ratio(step, frames) * 1e-3},
          {"wait_us", Ratio(wait, frames) * 1e-3},
          {"link_us", Ratio(link, frames) * 1e-3},
          {"waiting_share", Ratio(wait + link, step + wait + link)},
          {"wrong_frames", load(status.wrong_frames)},
          {"reconnects", load(status.reconnects)},
          {"uptime_s", SecondsSince(started_ns)},
          {"pid", getpid()},
          {"version", LARDER_VERSION}};
}

StatusSocket::StatusSocket(SocketFacts facts, const pipeline::SocketStatus& status)
    : facts_(std::move(facts)), status_(status), started_ns_(NowNs()) {
  const std::string name = StatusName(facts_.cluster, facts_.socket);
  Address address;
  if (!MakeAddress(name, &address)) throw Error("status socket {}: the name is too long", name);
  listener_ = rdma::Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_ || bind(listener_.get(), address.get(), address.bytes) != 0 ||
      listen(listener_.get(), 16) != 0) {
    throw Error("status socket {}: {}", name,
                errno == EADDRINUSE ? "another process has it: is this socket already running?"
                                    : std::strerror(errno));
  }
  watch_ = std::make_unique<rdma::FdWatch>(listener_.get(), [this] {
    AnswerOne();
    return rdma::FdWatch::kUntilReadable;
  });
}

void StatusSocket::AnswerOne() const {
  const rdma::Descriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client) return;  // it left again
  const std::string line = StatusJson(facts_, status_, started_ns_)
                               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                           "\n";
  // Fits the socket's buffer; whoever does not read it keeps nobody waiting.
  [[maybe_unused]] const ssize_t sent = send(client.get(), line.data(), line.size(), MSG_NOSIGNAL);
}

std::vector<std::string> StatusNames(const std::string& proc_net_unix) {
  std::vector<std::string> names;
  std::istringstream lines(proc_net_unix);
  for (std::string line; std::getline(lines, line);) {
    // number: references protocol flags type state inode path; flags 00010000: listens
    const size_t at = line.find(std::string(" @") + kStatusPrefix);
    std::istringstream fields(line);
    std::string number, references, protocol, flags;
    fields >> number >> references >> protocol >> flags;
    if (at != line.npos && flags == "00010000") names.push_back(line.substr(at + 2));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<nlohmann::json> AskStatus(const std::string& name, int timeout_ms, std::string* problem) {
  const int64_t deadline_ns = NowNs() + int64_t{timeout_ms} * 1'000'000;
  Address address;
  const rdma::Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || !MakeAddress(name, &address)) {
    *problem = fd ? "its name is too long" : std::strerror(errno);
    return std::nullopt;
  }
  if (connect(fd.get(), address.get(), address.bytes) != 0) {
    *problem = errno == ECONNREFUSED ? "does not answer: not running" : std::strerror(errno);
    return std::nullopt;
  }
  std::string answer;
  char buffer[4096];
  while (answer.size() <= kMaxAnswerBytes) {
    const ssize_t got = recv(fd.get(), buffer, sizeof(buffer), 0);
    if (got > 0) {
      answer.append(buffer, static_cast<size_t>(got));
    } else if (got == 0) {
      break;
    } else if (errno == EAGAIN) {
      if (WaitFor(fd.get(), POLLIN, deadline_ns)) continue;
      *problem = fmt::format("does not answer within {} ms: it is stopped or overloaded", timeout_ms);
      return std::nullopt;
    } else if (errno != EINTR) {
      *problem = std::strerror(errno);
      return std::nullopt;
    }
  }
  // Any local process may listen on such a name.
  nlohmann::json json = nlohmann::json::parse(answer, nullptr, false);
  if (answer.size() > kMaxAnswerBytes || !json.is_object() || !json.contains("socket") ||
      !json["socket"].is_string()) {
    *problem = "answers something else than a socket's status";
    return std::nullopt;
  }
  return json;
}

}  // namespace larder::node
