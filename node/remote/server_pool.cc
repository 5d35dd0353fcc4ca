#include "node/remote/server_pool.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "node/loadgen/http_get.h"
#include "node/remote/server_connection.h"
#include "serving/batch/remote_request.h"

namespace larder::node::inline remote {
namespace {

using nlohmann::json;
using serving::BatchLine;
using serving::ServedModel;

constexpr const char* kPlanPath = "/v1/larder/plan";
constexpr double kAskTimeoutS = 10, kAskAgainS = 0.5;
constexpr double kFirstPauseS = 0.25, kLongestPauseS = 5;
constexpr double kLookEveryS = 5, kSilentS = 30;  // a server whose process hangs still has its
                                                  // connections
constexpr size_t kMostLosses = 25;                // losses of one request: it may be the reason why
                                                  // servers end
constexpr double kAtWorkS = 2;  // a request that is with a server for so long is computed

int64_t After(double seconds) { return NowNs() + static_cast<int64_t>(seconds * 1e9); }

// Throws Error if it is no answer of a server that is ready.
ServedModel ModelOf(int status, const std::string& body) {
  const json plan = TryParseJsonText<json>(body).value_or(json());
  if (status == 200) return ServedModel::OfPlan(plan);
  std::string why;
  try {
    why = plan.at("error").at("message").get<std::string>();
  } catch (const json::exception&) {  // another server's
  }
  throw Error("status {}{}{}", status, why.empty() ? "" : ": ", why);
}

// The same answer each time: to wait is in vain.
bool IsDenied(int status) { return status == 401 || status == 403; }
// Not the request's fault.
bool IsForLater(int status) {
  return status == 408 || status == 429 || status == 502 || status == 503 || status == 504;
}

std::string PlanRequest(const ServeTarget& target) {
  return HttpBytes(target, "GET", target.path + kPlanPath, "");
}

class Pool {
 public:
  Pool(const ServerPoolOptions& options, const ServedModel& model, serving::BatchWork& work,
       const std::function<std::string(const BatchLine&)>& body)
      : options_(options),
        model_(model),
        work_(work),
        body_(body),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw Error("can't create an epoll: {}", std::strerror(errno));
    for (size_t i = 0; i < options.servers.size(); ++i) {
      servers_.push_back(std::make_unique<Server>(Server{.named = options.servers[i]}));
      AddConnection(i);  // the one that looks whether it is there
    }
    progress_ns_ = NowNs();
  }

  void Run() {
    while (!work_.ended()) {
      for (auto& server : servers_) Look(*server);
      HandOut();
      if (work_.all_begun() && waiting_.empty() && in_flight_ == 0) return;
      CheckPatience();
      Wait();
      work_.SyncIfDue();
    }
  }

 private:
  struct Line {
    BatchLine line;
    size_t losses = 0;
  };
  struct Link {
    Link(int epoll, uint64_t tag) : connection(epoll, tag) {}
    ServerConnection connection;
    bool known = false;   // the process at its other end serves the model
    bool asking = false;  // what is served; else a request of the job is under way, if it is busy
    std::unique_ptr<Line> line;
    int64_t since_ns = 0;  // when the request was sent
  };
  struct Server {
    NamedServer named;
    std::optional<Address> address = {};  // address of its name, once resolved
    std::vector<Link> links = {};         // the first looks, the others have the job's requests
    bool up = false, excluded = false, was_lost = false;
    size_t slots = 1, running = 0, closed = 0;  // closed: connections since the last answer
    int64_t next_look_ns = 0, paused_until_ns = 0;
    double pause_s = kFirstPauseS;
    std::string problem = "not asked yet";
  };

  size_t RoomOf(const Server& server) const {
    return options_.concurrency > 0 ? options_.concurrency : 2 * server.slots;
  }

  Link& AddConnection(size_t of) {
    Server& server = *servers_[of];
    server.links.emplace_back(epoll_.get(), uint64_t{of} << 32 | server.links.size());
    return server.links.back();
  }

  void Ask(Server& server, Link& link) {
    link.asking = true;
    link.since_ns = NowNs();
    const ServeTarget& target = server.named.target;
    try {
      if (!server.address) server.address = Resolve(target.host, target.port);
      link.connection.Send(*server.address, PlanRequest(target));
    } catch (const Error& error) {
      Lose(server, error.what());
    }
  }

  void SendLine(Server& server, Link& link) {
    const ServeTarget& target = server.named.target;
    link.asking = false;
    link.since_ns = NowNs();
    try {
      link.connection.Send(
          *server.address,
          HttpBytes(target, "POST", target.path + serving::RouteOf(link.line->line.dialect),
                    body_(link.line->line)));
    } catch (const Error& error) {
      Lose(server, error.what());
    }
  }

  // Asks a server that is away whether it is back, and one that works whether it still lives.
  void Look(Server& server) {
    if (server.excluded) return;
    Link& looks = server.links.front();
    const int64_t now_ns = NowNs();
    if (looks.connection.busy()) {
      if (now_ns - looks.since_ns > static_cast<int64_t>(kSilentS * 1e9))
        Lose(server, fmt::format("silent for {} s", kSilentS));
    } else if (now_ns >= server.next_look_ns && (!server.up || server.running > 0)) {
      server.next_look_ns = After(kLookEveryS);
      Ask(server, looks);
    }
  }

  std::unique_ptr<Line> NextLine() {
    if (!waiting_.empty()) {
      auto line = std::move(waiting_.front());
      waiting_.pop_front();
      return line;
    }
    std::optional<BatchLine> next = work_.Next();
    return next ? std::make_unique<Line>(Line{.line = std::move(*next)}) : nullptr;
  }

  // One request to each server that has room, and again: they share what there is.
  void HandOut() {
    for (bool any = true; any;) {
      any = false;
      for (size_t i = 0; i < servers_.size(); ++i) {
        Server& server = *servers_[i];
        if (!server.up || server.running >= RoomOf(server) || NowNs() < server.paused_until_ns)
          continue;
        auto line = NextLine();
        if (!line) return;
        any = true;
        Begin(i, std::move(line));
      }
    }
  }

  void Begin(size_t at, std::unique_ptr<Line> line) {
    Server& server = *servers_[at];
    auto link = std::find_if(server.links.begin() + 1, server.links.end(), [](const Link& one) {
      return one.line == nullptr && !one.connection.busy();
    });
    Link& chosen = link == server.links.end() ? AddConnection(at) : *link;
    chosen.line = std::move(line);
    ++server.running;
    ++in_flight_;
    if (chosen.known && chosen.connection.open()) {
      SendLine(server, chosen);
    } else {
      Ask(server, chosen);  // the request follows
    }
  }

  std::unique_ptr<Line> TakeBack(Server& server, Link& link) {
    if (link.line) {
      --server.running;
      --in_flight_;
    }
    return std::move(link.line);
  }

  void GiveBack(std::unique_ptr<Line> line, bool lost) {
    if (lost && ++line->losses > kMostLosses) {
      work_.Fail(fmt::format("line {} was lost {} times with the server that computed it",
                             line->line.number, line->losses));
    }
    waiting_.push_back(std::move(line));
  }

  // Nothing of this server counts any more, until it is back.
  void Lose(Server& server, const std::string& why) {
    const size_t running = server.running;
    for (Link& link : server.links) {
      const bool computed = !link.asking;
      link.connection.Close();
      link.known = link.asking = false;
      if (auto line = TakeBack(server, link)) GiveBack(std::move(line), computed);
    }
    if (server.up || server.problem != why) {
      spdlog::warn(
          "{}: {}{}", server.named.url, why,
          running > 0 ? fmt::format("; its {} requests go to others", running) : std::string());
    }
    server.problem = why;
    server.was_lost = true;
    server.up = false;
    server.closed = 0;
    server.next_look_ns = After(server.pause_s);
    server.pause_s = std::min(2 * server.pause_s, kLongestPauseS);
  }

  // Nothing is wrong with the server, but it wants to be left alone for a while.
  void Pause(Server& server, int asked_s) {
    server.paused_until_ns =
        After(std::max(server.pause_s, std::min<double>(asked_s, kLongestPauseS)));
    server.pause_s = std::min(2 * server.pause_s, kLongestPauseS);
  }

  void TakePlan(Server& server, Link& link) {
    const int status = link.connection.reply().status();
    link.asking = false;
    std::string differs;
    try {
      const ServedModel served = ModelOf(status, link.connection.body());
      differs = model_.Differs(served);
      server.slots = std::min<size_t>(served.slots, 4096);
    } catch (const Error& error) {
      if (IsDenied(status))
        return work_.Fail(fmt::format("{}: {}", server.named.url, error.what()));
      return Lose(server, error.what());
    }
    if (!differs.empty()) {
      Lose(server, differs);
      server.excluded = true;
      return;
    }
    link.known = true;
    if (!server.up && server.was_lost) spdlog::info("{}: is back", server.named.url);
    server.up = true;
    server.next_look_ns = After(kLookEveryS);
    if (link.line) SendLine(server, link);
  }

  void TakeAnswer(Server& server, Link& link) {
    const int status = link.connection.reply().status();
    auto line = TakeBack(server, link);
    if (IsForLater(status)) {
      Pause(server, link.connection.reply().retry_after_s());
      return GiveBack(std::move(line), false);
    }
    json body = TryParseJsonText<json>(link.connection.body()).value_or(json());
    if (IsDenied(status) || !body.is_object()) {
      GiveBack(std::move(line), true);
      if (IsDenied(status))
        return work_.Fail(fmt::format("{}: status {}", server.named.url, status));
      return Lose(server,
                  fmt::format("status {} with an answer that is not a JSON object", status));
    }
    server.pause_s = kFirstPauseS;
    server.closed = 0;
    progress_ns_ = NowNs();
    if (status == 200) {
      work_.Answer(line->line, std::move(body));
    } else {
      work_.AnswerError(line->line, status, body);
    }
  }

  void Serve(Server& server, Link& link) {
    const bool asking = link.asking;
    const bool begun = link.connection.reply().begun();
    try {
      if (!link.connection.Advance()) {
        if (!link.connection.open()) link.known = false;
        return;
      }
    } catch (const Error& error) {
      // Servers close connections that were idle. One that only does this, or does not answer at
      // all, is lost.
      if (!asking && !begun && ++server.closed <= server.links.size()) {
        link.known = false;
        if (auto line = TakeBack(server, link)) GiveBack(std::move(line), true);
        return;
      }
      return Lose(server, error.what());
    }
    if (!link.connection.open()) link.known = false;
    asking ? TakePlan(server, link) : TakeAnswer(server, link);
  }

  void Wait() {
    epoll_event events[64];
    const int n = epoll_wait(epoll_.get(), events, 64, 50);
    for (int i = 0; i < n && !work_.ended(); ++i) {
      Server& server = *servers_[events[i].data.u64 >> 32];
      Serve(server, server.links[events[i].data.u64 & UINT32_MAX]);
    }
  }

  void CheckPatience() {
    const int64_t now_ns = NowNs();
    bool any = false;
    std::string problems;
    for (const auto& server : servers_) {
      any = any || !server->excluded;
      for (const Link& link : server->links) {
        if (link.line && SecondsSince(link.since_ns) > kAtWorkS) progress_ns_ = now_ns;
      }
      if (!server->up) problems += fmt::format("; {}: {}", server->named.url, server->problem);
    }
    if (any && SecondsSince(progress_ns_) <= options_.patience_s) return;
    work_.Fail(any ? fmt::format("no answer for {} s{}", options_.patience_s, problems)
                   : "no server is left" + problems);
  }

  const ServerPoolOptions& options_;
  const ServedModel& model_;
  serving::BatchWork& work_;
  const std::function<std::string(const BatchLine&)>& body_;
  Descriptor epoll_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::deque<std::unique_ptr<Line>> waiting_;  // again; never more than all servers' room
  size_t in_flight_ = 0;
  int64_t progress_ns_ = 0;  // when there was an answer, or a server was at work
};

}  // namespace

ServedModel AskServers(const ServerPoolOptions& options) {
  const int64_t begin_ns = NowNs();
  for (std::string problem;; problem.clear()) {
    std::optional<ServedModel> model;
    std::string whose;
    for (const NamedServer& server : options.servers) {
      if (options.stopped()) throw Error("interrupted");
      ServedModel served;
      try {
        const HttpAnswer answer =
            HttpGet(server.target, server.target.path + kPlanPath, kAskTimeoutS);
        if (IsDenied(answer.status))
          throw Error("{}: status {}: expected a key of this server (--api-key)", server.url,
                      answer.status);
        try {
          served = ModelOf(answer.status, answer.body);
        } catch (const Error& error) {
          if (answer.status == 200 || answer.status == 404) throw;
          throw NoConnection("{}", error.what());  // it is not ready
        }
      } catch (const NoConnection& error) {
        problem += fmt::format("; {}: {}", server.url, error.what());
        continue;
      }
      if (!model) {
        if (served.biased) {
          throw Error("{}: {}", server.url, served.Differs(served));
        }
        whose = server.url;
        model = std::move(served);
      } else if (const std::string differs = model->Differs(served); !differs.empty()) {
        throw Error("{} and {} differ: {}", whose, server.url, differs);
      }
    }
    if (model) {
      if (!problem.empty()) spdlog::warn("left out until they answer{}", problem);
      return *model;
    }
    if (SecondsSince(begin_ns) > options.patience_s)
      throw Error("no server answers for {} s{}", options.patience_s, problem);
    std::this_thread::sleep_for(std::chrono::duration<double>(kAskAgainS));
  }
}

void RunOnServers(const ServerPoolOptions& options, const ServedModel& model,
                  serving::BatchWork& work,
                  const std::function<std::string(const BatchLine&)>& body) {
  Pool(options, model, work, body).Run();
}

}  // namespace larder::node::remote
