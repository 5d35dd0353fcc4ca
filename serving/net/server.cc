#include "serving/net/server.h"

#include <ctime>
#include <future>

#include "base/clock.h"
#include "serving/net/http_session.h"

namespace larder::serving::inline net {
namespace {

constexpr double kDrainCheckS = 0.02;
// They share what others leave of the cores: with three, a short request waits for no two long
// ones.
constexpr size_t kPreparingThreads = 3;
constexpr double kLastWordsS = 2;  // time for finished answers to reach their clients

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      failures_(options_.log),
      admission_(options_.admission),
      net_(admission_, failures_),
      background_([this](const char* what) { failures_.Count("background thread", what); },
                  {.threads = kPreparingThreads, .limits = WorkLimits{}}) {
  state_.admission = &admission_;
  state_.failures = &failures_;
  state_.api_keys.SetSecret(options_.tenant_secret);
  state_.api_keys = options_.api_keys;
  // The address that is open to most, and the names of the others.
  const auto open = std::ranges::find_if_not(options_.hosts, IsLoopback);
  std::vector<std::string> names = options_.allowed_hosts;
  names.insert(names.end(), options_.hosts.begin(), options_.hosts.end());
  state_.access = Access({.host = open == options_.hosts.end() ? options_.hosts.at(0) : *open,
                          .hosts = std::move(names),
                          .cors_origins = options_.cors_origins});
  state_.on_denied = options_.on_denied;
  state_.version = options_.version;
  state_.has_page = options_.page;
  state_.shows_slots = options_.slots;
  state_.start_ns = NowNs();
  state_.created = static_cast<int64_t>(std::time(nullptr));
  state_.in_background = [this](const std::string& peer, std::function<void()> work,
                                std::function<void()> then) {
    return background_.Post(peer, [this, work = std::move(work), then = std::move(then)]() mutable {
      try {
        work();
      } catch (const NotWanted&) {  // its client has left
      }
      work = nullptr;
      net_.Post(std::move(then));  // it is also freed there
    });
  };
  if (options_.responses.responses > 0) {
    responses_ = std::make_unique<ResponseStore>(options_.responses);
    state_.responses = responses_.get();
  }
  if (!options_.batch_folder.empty()) OpenBatches();
  Listen();
  net_.Every(kDrainCheckS, [this] {
    io_pulse_.Beat();
    if (batches_) batches_->Tick();
    KeepDraining();
  });
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "larder-io");
    net_.Run();
  });
}

void Server::OpenBatches() {
  batches_ = std::make_unique<BatchService>(
      options_.batch_folder, options_.batch_quota,
      [this](const std::string& line) {
        if (options_.log) options_.log(line);
      },
      [this](std::function<void()> what) { net_.Post(std::move(what)); },
      [this](const char* what) { failures_.Count("thread of files", what); });
  state_.batches = batches_.get();
  // A part's header and the other fields come with the file.
  constexpr size_t kAround = size_t{64} << 10;
  options_.http.streamed = [most = options_.batch_quota.file_bytes + kAround](
                               std::string_view method,
                               std::string_view path) -> std::optional<size_t> {
    if (method == "POST" && path == "/v1/files") return most;
    return std::nullopt;
  };
}

// On the thread that loads the model: until it is ready nobody asks for responses.
void Server::OpenResponses(ReadyServer& ready) {
  if (!responses_ || ready.response_folder.empty()) return;
  responses_->Open(
      {.folder = ready.response_folder,
       .log =
           [this](const std::string& line) {
             if (options_.log) options_.log(line);
           },
       .failed = [this](const char* what) { failures_.Count("a stored response", what); },
       .pin = std::move(ready.pin_response_files)});
}

void Server::Listen() {
  const auto counter = [this](Protocol protocol, size_t& count) {
    return [this, protocol, &count, here = size_t{0}](size_t open) mutable {
      count += open - here;  // over all addresses
      here = open;
      if (metrics_) metrics_->SetConnections(protocol, count);
    };
  };
  if (options_.port >= 0) {
    const auto whole = [](int status, const char* why) {
      const std::string body = Dump(ErrorJson(status, why));
      return fmt::format(
          "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
          "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
          status, StatusText(status), body.size(), body);
    };
    for (const std::string& host : options_.hosts) {
      port_ = net_.Listen(
          {.host = host,
           .port = static_cast<uint16_t>(std::max(port_, options_.port)),
           .v6_only = options_.hosts.size() > 1,
           .limits = options_.connections,
           .when_full = whole(503, "too many connections; try again later"),
           .when_peer_full = whole(429, "too many connections of this address; try again later"),
           .count_changed = counter(Protocol::kHttp, state_.http_connections),
           .turned_away = [this](int status) { state_.CountError(Protocol::kHttp, status); }},
          [this](Wire& wire) {
            return std::make_unique<HttpSession>(wire, state_, options_.http);
          });
    }
  }
  for (const std::string& host : options_.hosts) {
    if (options_.text_port < 0) break;
    text_port_ = net_.Listen(
        {.host = host,
         .port = static_cast<uint16_t>(std::max(text_port_, options_.text_port)),
         .v6_only = options_.hosts.size() > 1,
         .limits = options_.connections,
         .when_full = "error: too many connections; try again later\n",
         .when_peer_full = "error: too many connections of this address; try again later\n",
         .count_changed = counter(Protocol::kText, state_.text_connections),
         .turned_away = [this](int status) { state_.CountError(Protocol::kText, status); }},
        [this](Wire& wire) { return std::make_unique<TextSession>(wire, state_, options_.text); });
  }
}

Server::~Server() { Close(); }

void Server::Close() {
  net_.Stop();
  if (thread_.joinable()) thread_.join();
  background_.Close();
  if (batches_) batches_->Close();
  net_.Close();
  if (responses_) responses_->Close();
}

void Server::SetKeys(std::vector<std::string> keys) { state_.api_keys = std::move(keys); }
// Not the thread of files: a disk that hangs must not end a server whose clients need none. Beside
// computing threads, the background thread has a thirtieth of a core: it tokenizes 1 MB in
// some seconds.
std::vector<Server::Loop> Server::loops() const {
  return {{"I/O thread", &io_pulse_, 1}, {"thread for large requests", &background_.pulse(), 4}};
}

void Server::Loading(const std::string& what, double share) {
  net_.Post([this, what, share] {
    state_.loading_what = what;
    state_.loading_share = share;
  });
}

pipeline::Intake& Server::Ready(ReadyServer ready) {
  OpenResponses(ready);
  std::promise<pipeline::Intake*> done;
  net_.Post([&] {
    try {
      done.set_value(&BeReady(ready));
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  return *done.get_future().get();
}

pipeline::Intake& Server::BeReady(ReadyServer& ready) {
  metrics_ = std::make_unique<ServingMetrics>(ready.sockets);
  service_ = std::make_unique<GenerationService>(
      GenerationServiceOptions{.tokenizer = ready.defaults.tokenizer,
                               .vocab = ready.defaults.vocab,
                               .context = ready.defaults.context,
                               .model_context = ready.defaults.model_context,
                               .slots = ready.slots,
                               .queue_limit = ready.queue_limit,
                               .outage = std::move(ready.outage)},
      *metrics_, &failures_);
  if (drain_began_ns_ != 0) service_->Drain();
  if (ready.pin_thread) {
    ready.pin_thread();
    pinning_ = background_.Post("", ready.pin_thread);
  }
  state_.defaults = std::move(ready.defaults);
  state_.plan = std::move(ready.plan);
  state_.fill_status = std::move(ready.fill_status);
  state_.fill_metrics = std::move(ready.fill_metrics);
  state_.experts = std::move(ready.experts);
  state_.slot_action = std::move(ready.slot_action);
  state_.metrics = metrics_.get();
  metrics_->SetConnections(Protocol::kHttp, state_.http_connections);
  metrics_->SetConnections(Protocol::kText, state_.text_connections);
  net_.Watch(service_->wake_fd(), [this] { service_->Dispatch(); });
  net_.BetweenTurns([this] { service_->DispatchIfDue(); });
  state_.service = service_.get();
  if (batches_) {
    batches_->Begin(*service_, state_.defaults, std::move(ready.batch),
                    [this](Tenant tenant) { return state_.api_keys.Knows(tenant); });
    if (ready.pin_thread)
      batches_->Post("", [pin = ready.pin_thread](BatchService::Files&) { pin(); }, {});
    if (drain_began_ns_ != 0) batches_->Drain();
  }
  return *service_;
}

void Server::Drain() {
  net_.Post([this] {
    if (drain_began_ns_ != 0) return;
    drain_began_ns_ = NowNs();
    if (batches_) batches_->Drain();
    if (service_) service_->Drain();
    net_.StopListening();
    net_.CloseIdle();
  });
}

void Server::KeepDraining() {
  if (drain_began_ns_ == 0 || !service_) return;
  const double since_s = SecondsSince(drain_began_ns_);
  if (service_->live() > 0) {
    if (since_s > options_.drain_s && !cancelled_all_) {
      cancelled_all_ = true;
      service_->CancelAll();
    }
    return;
  }
  // Clients get a moment to read the finished answers.
  if (net_.connections() == 0 || since_s > options_.drain_s + kLastWordsS) service_->Stop();
}

}  // namespace larder::serving::net
