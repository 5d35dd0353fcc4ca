#include "node/service/service_status.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/control_char.h"
#include "base/error.h"
#include "base/json_text.h"

namespace larder::node::inline service {
namespace {

constexpr size_t kMaxAnswerBytes = 64 << 10;

// Where a socket may answer, and which user, besides this one and root, is believed there.
struct Place {
  std::string folder;  // empty: an abstract name
  uid_t user;
};

// Only the runtime folder's owner can listen in it: root believes that owner, and other users have
// no access. Abstract names come last, because any user may have taken one.
std::vector<Place> Places() {
  std::vector<Place> places;
  const std::string own = rdma::RuntimeFolder();
  struct stat units = {};
  if (!own.empty()) {
    places.push_back({own, geteuid()});
  } else if (stat(rdma::kRuntimeFolder, &units) == 0 && S_ISDIR(units.st_mode)) {
    places.push_back({rdma::kRuntimeFolder, units.st_uid});
  }
  places.push_back({"", geteuid()});
  return places;
}

Descriptor NewSocket() {
  return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Connects to the first place where a process listens; without one, *problem says why.
Descriptor ConnectStatus(const std::string& name, std::string* problem) {
  bool shut_out = false;
  for (const Place& place : Places()) {
    Descriptor fd = NewSocket();
    if (!fd) {
      *problem = std::strerror(errno);
      return {};
    }
    rdma::LocalAddress address;
    try {
      address = rdma::AddressOf(name, place.folder);
    } catch (const Error& error) {
      *problem = error.what();
      return {};
    }
    if (connect(fd.get(), address.get(), address.bytes) == 0) {
      const ucred peer = rdma::PeerOf(fd.get());
      if (peer.uid == geteuid() || peer.uid == 0 || peer.uid == place.user) return fd;
      *problem = fmt::format(
          "not trusted: pid {} of user {} has its name, not user {}; ask as that user, or stop "
          "that process",
          peer.pid, peer.uid, geteuid());
      return {};
    }
    if (errno == EACCES) {
      shut_out = true;
    } else if (errno != ECONNREFUSED && errno != ENOENT) {
      *problem = std::strerror(errno);
      return {};
    }
  }
  *problem = "does not answer: not running";
  if (shut_out)
    *problem =
        "does not answer this user: units answer only root and the user larder (sudo larder "
        "status)";
  return {};
}

double Ratio(uint64_t a, uint64_t b) {
  return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
}

// Waits until fd is ready; false once the deadline has passed.
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

nlohmann::json SocketStatusJson(const SocketFacts& facts, const pipeline::SocketStatus& status,
                                int64_t started_ns) {
  auto load = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  const SocketCounters now = pipeline::LoadCounters(status);
  const auto state =
      static_cast<pipeline::SocketState>(status.state.load(std::memory_order_relaxed));
  const auto share = [](std::optional<double> of) {
    return of ? nlohmann::json(*of) : nlohmann::json(nullptr);
  };
  std::string layers;
  if (facts.layers != 0)
    layers = fmt::format("{}-{}", facts.first_layer, facts.first_layer + facts.layers - 1);
  return {
      {"cluster", facts.cluster},
      {"socket", facts.socket},
      {"role", facts.role},
      {"layers", layers},
      {"slots", facts.slots},
      {"weight_mb", static_cast<double>(std::max(facts.weight_bytes, now.weight_bytes)) * 1e-6},
      {"kv_mb", static_cast<double>(facts.kv_bytes) * 1e-6},
      {"resident_share_live", share(now.live_resident_share())},
      {"state", pipeline::SocketStateName(state)},
      {"frames_started", load(status.frames_started)},
      {"frames", now.frames},
      {"rows", now.rows},
      {"step_us", Ratio(now.step_ns, now.frames) * 1e-3},
      {"wait_us", Ratio(now.wait_ns, now.frames) * 1e-3},
      {"link_us", Ratio(now.link_ns, now.frames) * 1e-3},
      {"waiting_share", Ratio(now.wait_ns + now.link_ns, now.step_ns + now.wait_ns + now.link_ns)},
      {"wrong_frames", load(status.wrong_frames)},
      {"reconnects", load(status.reconnects)},
      {"uptime_s", SecondsSince(started_ns)},
      {"pid", getpid()},
      {"version", LARDER_VERSION}};
}

StatusEndpoint::StatusEndpoint(SocketFacts facts, const pipeline::SocketStatus& status)
    : facts_(std::move(facts)), status_(status), started_ns_(NowNs()) {
  const std::string name = StatusName(facts_.cluster, facts_.socket);
  try {
    listener_ = rdma::LocalListener("status socket", name, SOCK_STREAM, 16);
  } catch (const Error&) {
    const rdma::LocalAddress address = rdma::AddressOf(name);
    const Descriptor fd = NewSocket();
    if (connect(fd.get(), address.get(), address.bytes) != 0) throw;
    const ucred holder = rdma::PeerOf(fd.get());
    if (holder.uid == geteuid() || holder.uid == 0) throw;
    throw StatusNameTaken(
        "status socket {}: pid {} of user {} has its name, which is not this process's user: stop "
        "it, or set RUNTIME_DIRECTORY to a folder of yours with mode 0700",
        name, holder.pid, holder.uid);
  }
  watch_ = std::make_unique<rdma::FdWatch>(listener_.fd(), [this] {
    AnswerOne();
    return rdma::FdWatch::kUntilReadable;
  });
}

void StatusEndpoint::AnswerOne() const {
  const Descriptor client(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client) {  // the client has left; or no descriptor is free, and the socket stays readable
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return;
  }
  const std::string line = SocketStatusJson(facts_, status_, started_ns_)
                               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                           "\n";
  // The line fits the socket's buffer, so a client that does not read cannot block this thread.
  [[maybe_unused]] const ssize_t sent = send(client.get(), line.data(), line.size(), MSG_NOSIGNAL);
}

std::vector<std::string> StatusNames(const std::string& proc_net_unix, const std::string& folder) {
  const std::string file = folder + "/" + rdma::FileOfName(kStatusPrefix);
  std::set<std::string> names;
  std::istringstream lines(proc_net_unix);
  for (std::string line; std::getline(lines, line);) {
    // Fields: number: references protocol flags type state inode path; flags 00010000: a listening
    // socket.
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> std::ws;
    std::getline(fields, path);
    if (flags != "00010000") continue;
    std::string name;
    if (path.starts_with(std::string("@") + kStatusPrefix)) name = path.substr(1);
    if (path.starts_with(file)) name = rdma::NameOfFile(path.substr(folder.size() + 1));
    // Names are shown; those of other users' sockets may hold anything, those of Larder's do not.
    if (!name.empty() && std::none_of(name.begin(), name.end(), IsControlChar)) names.insert(name);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> StatusNames() {
  std::ifstream file("/proc/net/unix");
  std::ostringstream text;
  text << file.rdbuf();
  return StatusNames(text.str(), Places().front().folder);
}

std::optional<nlohmann::json> AskStatus(const std::string& name, int timeout_ms,
                                        std::string* problem) {
  const int64_t deadline_ns = NowNs() + int64_t{timeout_ms} * 1'000'000;
  const Descriptor fd = ConnectStatus(name, problem);
  if (!fd) return std::nullopt;
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
      *problem =
          fmt::format("did not answer within {} ms: it is stopped or overloaded", timeout_ms);
      return std::nullopt;
    } else if (errno != EINTR) {
      *problem = std::strerror(errno);
      return std::nullopt;
    }
  }
  // Even a process of the same user may answer with something else.
  auto json = TryParseJsonText<nlohmann::json>(answer).value_or(nlohmann::json());
  if (answer.size() > kMaxAnswerBytes || !json.is_object() || !json.contains("socket") ||
      !json["socket"].is_string()) {
    *problem = "its answer is not a socket's status";
    return std::nullopt;
  }
  return json;
}

}  // namespace larder::node::service
