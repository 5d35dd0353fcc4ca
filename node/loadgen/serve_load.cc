#include "node/loadgen/serve_load.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "node/loadgen/arrivals.h"
#include "node/loadgen/client_connection.h"
#include "node/loadgen/http_get.h"

namespace larder::node::inline loadgen {
namespace {

// Raises the limit of open files to the most that the system allows.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

struct Client {
  size_t index = 0;  // index in clients_
  Descriptor fd;
  size_t request = 0;
  bool busy = false;
  bool used_before = false;  // the connection has carried a reply, so the server may have closed it
                             // since
  std::string out;
  size_t sent = 0;
  std::optional<ReplyReader> reader;
};

class Load {
 public:
  explicit Load(const LoadSpec& spec)
      : spec_(spec),
        requests_(spec.requests),
        address_(Resolve(spec.target.host, spec.target.port)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (epoll_.get() < 0 || timer_.get() < 0)
      throw Error("can't create an epoll or timer: {}", std::strerror(errno));
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kTimer}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event);
    arrivals_ns_ = Arrivals(requests_.size(), spec_.requests_per_s, spec_.seed);
  }

  LoadRun Run(const std::function<bool(size_t)>& go_on) {
    const int64_t begin_ns = NowNs();
    for (int64_t& at : arrivals_ns_) at += begin_ns;
    results_.resize(requests_.size());
    while (done_ < requests_.size() && go_on(done_)) {
      StartDue();
      WaitAndServe();
      EndLate();
    }
    for (auto& client : clients_) {
      if (client->busy) End(*client, "interrupted");
    }
    std::erase_if(results_, [](const RequestResult& result) { return result.start_ns == 0; });
    run_.results = std::move(results_);
    run_.duration_s = SecondsSince(begin_ns);
    return std::move(run_);
  }

 private:
  static constexpr uint64_t kTimer = ~uint64_t{0};

  bool full() const { return spec_.max_concurrency > 0 && in_flight_ >= spec_.max_concurrency; }

  // A conversation that has begun goes on before another begins.
  void StartDue() {
    for (; !followers_.empty() && !full(); followers_.pop_front()) Start(followers_.front());
    while (next_ < arrivals_ns_.size() && !full() && arrivals_ns_[next_] <= NowNs()) Start(next_++);
  }

  void Start(size_t request) {
    if (idle_.empty()) {
      idle_.push_back(clients_.size());
      clients_.push_back(std::make_unique<Client>());
      clients_.back()->index = idle_.back();
    }
    Client& client = *clients_[idle_.back()];
    idle_.pop_back();
    client.request = request;
    client.busy = true;
    client.out = RequestBytes(spec_.target, requests_[request], spec_.sampling);
    run_.most_in_flight = std::max(run_.most_in_flight, ++in_flight_);
    results_[request].turn = requests_[request].turn;
    results_[request].start_ns = NowNs();
    Send(client);
  }

  // Opens the connection if there is none, and sends the request from its first byte.
  void Send(Client& client) {
    client.sent = 0;
    client.reader.emplace(spec_.target.kind, spec_.next != nullptr);
    try {
      if (!client.fd) {
        client.fd = Connect(address_);
        client.used_before = false;
        epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                          .data = {.u64 = client.index}};
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client.fd.get(), &event);
        return;  // EPOLLOUT reports when it is connected
      }
      Write(client);
    } catch (const Error& error) {
      End(client, error.what());
    }
  }

  void Write(Client& client) {
    while (client.sent < client.out.size()) {
      const ssize_t n = send(client.fd.get(), client.out.data() + client.sent,
                             client.out.size() - client.sent, MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw Error("can't send: {}", std::strerror(errno));
      client.sent += static_cast<size_t>(n);
    }
  }

  void WaitAndServe() {
    // The timer goes off at the next arrival, to the microsecond; it is set only when that time
    // changes.
    const bool waits = next_ < arrivals_ns_.size() && !full();
    const int64_t until_ns = waits ? arrivals_ns_[next_] : 0;
    if (until_ns != timer_ns_) {
      timer_ns_ = until_ns;
      const itimerspec when = {
          .it_value = {.tv_sec = until_ns / 1'000'000'000, .tv_nsec = until_ns % 1'000'000'000}};
      timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
    }
    epoll_event events[64];
    const int n = epoll_wait(epoll_.get(), events, 64, 100);
    for (int i = 0; i < n; ++i) {
      const uint64_t index = events[i].data.u64;
      if (index == kTimer) {
        uint64_t ticks = 0;
        if (read(timer_.get(), &ticks, sizeof ticks) < 0)
          continue;  // it was set anew before it went off
      } else {
        Serve(*clients_[index], (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
      }
    }
  }

  // `closing`: the peer will send no more, so no further edge will announce what is still unread.
  void Serve(Client& client, bool closing) {
    if (!client.fd) return;
    try {
      if (client.busy) Write(client);
      while (client.fd) {
        char bytes[16 << 10];
        const ssize_t n = recv(client.fd.get(), bytes, sizeof bytes, 0);
        const int64_t now_ns = NowNs();
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
        if (n <= 0 && !client.busy) {  // the server closed an idle connection
          client.fd.Reset();
          return;
        }
        if (n <= 0 && client.used_before && !client.reader->begun()) {  // closed as we sent: again
          client.fd.Reset();
          return Send(client);
        }
        if (n < 0) throw Error("can't read: {}", std::strerror(errno));
        if (!client.busy) throw Error("the server sent data without a request");
        RequestResult& result = results_[client.request];
        const std::string_view piece(bytes, static_cast<size_t>(n));
        if (n > 0 ? client.reader->Feed(piece, now_ns, result) : client.reader->Close(result))
          End(client, "");
        if (n > 0 && static_cast<size_t>(n) < sizeof bytes && !closing)
          return;  // another edge will come
      }
    } catch (const Error& error) {
      client.busy ? End(client, error.what()) : client.fd.Reset();
    }
  }

  // Ends the request; with `error` it has failed and the connection is closed.
  void End(Client& client, const std::string& error) {
    RequestResult& result = results_[client.request];
    if (!error.empty()) {
      result.ok = false;
      result.error = error;
    }
    if (!error.empty() || !client.reader->keep_alive()) client.fd.Reset();
    client.used_before = true;
    client.busy = false;
    idle_.push_back(client.index);
    --in_flight_;
    ++done_;
    if (result.ok && spec_.next) Follow(client.request);
  }

  void Follow(size_t ended) {
    std::optional<LoadRequest> next = spec_.next(requests_[ended], results_[ended]);
    results_[ended].message = {};
    if (!next) return;
    followers_.push_back(requests_.size());
    requests_.push_back(*std::move(next));
    results_.emplace_back();  // references to results end here
  }

  void EndLate() {
    const int64_t now_ns = NowNs();
    if (now_ns < next_check_ns_) return;
    next_check_ns_ = now_ns + 50'000'000;
    const auto limit_ns = static_cast<int64_t>(spec_.timeout_s * 1e9);
    for (auto& client : clients_) {
      if (client->busy && now_ns - results_[client->request].start_ns > limit_ns) {
        End(*client, fmt::format("not finished after {} s", spec_.timeout_s));
      }
    }
  }

  const LoadSpec& spec_;
  std::vector<LoadRequest> requests_;  // spec_'s, then those that follow
  std::deque<size_t> followers_;       // those of them that are to be sent
  const Address address_;
  Descriptor epoll_, timer_;
  std::vector<int64_t> arrivals_ns_;
  std::vector<RequestResult> results_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<size_t> idle_;
  size_t next_ = 0, in_flight_ = 0, done_ = 0;
  int64_t timer_ns_ = 0;  // the time that the timer is set to; 0: it is not set
  int64_t next_check_ns_ = 0;
  LoadRun run_;
};

}  // namespace

LoadRun RunLoad(const LoadSpec& spec, const std::function<bool(size_t)>& go_on) {
  RaiseFileLimit();
  return Load(spec).Run(go_on);
}

std::string FirstModel(const ServeTarget& target, double timeout_s) {
  HttpAnswer answer;
  try {
    answer = HttpGet(target, "/v1/models", timeout_s);
  } catch (const NoConnection& error) {
    throw Error(
        "no server at {}:{}: {}; start one with `larder serve -m MODEL`, or give --host and --port",
        target.host, target.port, error.what());
  }
  const auto models = TryParseJsonText<nlohmann::json>(answer.body).value_or(nlohmann::json());
  const auto id = nlohmann::json::json_pointer("/data/0/id");
  if (answer.status != 200 || !models.is_object() || !models.contains(id) ||
      !models[id].is_string()) {
    throw Error("GET /v1/models of {}:{} answered status {} without a model; name one with --model",
                target.host, target.port, answer.status);
  }
  return models[id].get<std::string>();
}

}  // namespace larder::node::loadgen
