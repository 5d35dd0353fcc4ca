#include "node/service/service_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/syslog.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "node/service/service_monitor.h"
#include "rdma/control/peer_monitor.h"

namespace larder::node::inline service {
namespace {

int Priority(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return LOG_CRIT;
    case spdlog::level::err:
      return LOG_ERR;
    case spdlog::level::warn:
      return LOG_WARNING;
    case spdlog::level::info:
      return LOG_INFO;
    default:
      return LOG_DEBUG;
  }
}

using Fields = std::vector<std::string>;  // NAME=value

// Takes no lock.
void SendToJournal(int priority, std::string_view message, const Fields& own, const Fields& more) {
  const Fields first = {fmt::format("MESSAGE={}", message), fmt::format("PRIORITY={}", priority)};
  std::vector<iovec> entry;
  for (const Fields* fields : {&first, &own, &more}) {
    for (const std::string& field : *fields)
      entry.push_back({const_cast<char*>(field.data()), field.size()});
  }
  sd_journal_sendv(entry.data(), static_cast<int>(entry.size()));
}

class JournalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit JournalSink(const Fields& fields) : fields_(fields) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    SendToJournal(Priority(message.level), {message.payload.data(), message.payload.size()},
                  fields_, {});
  }
  void flush_() override {}

 private:
  const Fields& fields_;
};

// "LARDER_SOCKET=a" as a member: "socket": "a".
void AddMembers(const Fields& fields, nlohmann::ordered_json* to) {
  constexpr std::string_view kPrefix = "LARDER_";
  for (const std::string& field : fields) {
    if (!field.starts_with(kPrefix)) continue;
    const size_t equals = field.find('=');
    std::string name = field.substr(kPrefix.size(), equals - kPrefix.size());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    (*to)[name] = field.substr(equals + 1);
  }
}

std::string Json(std::chrono::system_clock::time_point time, std::string_view level,
                 std::string_view message, const Fields* own, const Fields& more) {
  const auto since = time.time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  nlohmann::ordered_json line;
  line["time"] = fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z",
                             fmt::gmtime(static_cast<std::time_t>(us / 1'000'000)), us % 1'000'000);
  line["level"] = level;
  line["message"] = message;
  if (own != nullptr) AddMembers(*own, &line);
  AddMembers(more, &line);
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string_view LevelName(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
    case spdlog::level::err:
      return "error";
    case spdlog::level::warn:
      return "warn";
    case spdlog::level::info:
      return "info";
    default:
      return "debug";
  }
}

std::atomic<bool> logs_are_json{false}, level_is_fixed{false};

// The fields of this process's socket; never freed, because threads may still log at exit. Null if
// stderr is no journal.
std::atomic<const Fields*> socket_fields{nullptr};

class JsonSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string line =
        Json(message.time, LevelName(message.level),
             {message.payload.data(), message.payload.size()}, socket_fields.load(), {});
    fmt::print(stderr, "{}\n", line);
  }
  void flush_() override {}
};

void SayPeerLost(const std::string& peer, const std::string& reason, const std::string& line,
                 bool stopped) {
  LogLostPeer({peer, reason, stopped}, line);
}

}  // namespace

void LogLostPeer(const pipeline::LostPeer& peer, const std::string& line) {
  const Fields* fields = socket_fields.load();
  const auto level = peer.stopped ? spdlog::level::info : spdlog::level::err;
  if (!spdlog::should_log(level)) return;
  if (logs_are_json.load()) {
    const Fields more = {"LARDER_PEER=" + peer.socket, "LARDER_REASON=" + peer.reason};
    fmt::print(stderr, "{}\n",
               Json(std::chrono::system_clock::now(), LevelName(level), line, fields, more));
  } else if (fields != nullptr) {
    SendToJournal(Priority(level), line, *fields,
                  {"LARDER_PEER=" + peer.socket, "LARDER_REASON=" + peer.reason});
  } else {
    spdlog::log(level, "{}", line);
  }
}

void LogAsJson() {
  logs_are_json.store(true);
  const auto level = spdlog::get_level();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("larder-json", std::make_shared<JsonSink>()));
  spdlog::set_level(level);
}

bool LogsAreJson() { return logs_are_json.load(); }

std::string JsonLogLine(std::string_view level, std::string_view message) {
  return Json(std::chrono::system_clock::now(), level, message, socket_fields.load(), {});
}

std::optional<spdlog::level::level_enum> LogLevelByName(const std::string& name) {
  if (name == "error") return spdlog::level::err;
  if (name == "warn") return spdlog::level::warn;
  if (name == "info") return spdlog::level::info;
  if (name == "debug") return spdlog::level::debug;
  return std::nullopt;
}

void FixLogLevel(spdlog::level::level_enum level) {
  spdlog::set_level(level);
  level_is_fixed.store(true);
}

void SetLogLevel(spdlog::level::level_enum level) {
  if (!level_is_fixed.load()) spdlog::set_level(level);
}

bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat file = {};
  if (stream == nullptr || fstat(STDERR_FILENO, &file) != 0) return false;
  return fmt::format("{}:{}", file.st_dev, file.st_ino) == stream;
}

bool LogToJournal(const SocketFacts& facts) {
  const bool as_json = logs_are_json.load();
  if ((!StderrIsJournal() && !as_json) || socket_fields.load() != nullptr)
    return !as_json && socket_fields.load() != nullptr;
  const auto* fields = new Fields{"SYSLOG_IDENTIFIER=larder", "LARDER_CLUSTER=" + facts.cluster,
                                  "LARDER_SOCKET=" + facts.socket, "LARDER_ROLE=" + facts.role};
  socket_fields.store(fields);
  rdma::SetSayPeerLost(SayPeerLost);
  if (as_json) return false;
  const auto level = spdlog::get_level();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("larder-journal", std::make_shared<JournalSink>(*fields)));
  spdlog::set_level(level);
  return true;
}

}  // namespace larder::node::service
