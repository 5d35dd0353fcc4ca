// Log lines as journal entries with fields.
#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/syslog.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
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
    for (const std::string& field : *fields) entry.push_back({const_cast<char*>(field.data()), field.size()});
  }
  sd_journal_sendv(entry.data(), static_cast<int>(entry.size()));
}

class JournalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit JournalSink(const Fields& fields) : fields_(fields) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    SendToJournal(Priority(message.level), {message.payload.data(), message.payload.size()}, fields_, {});
  }
  void flush_() override {}

 private:
  const Fields& fields_;
};

// The fields of this process's socket; never freed, because threads may still log at exit. Null if stderr is
// no journal.
std::atomic<const Fields*> socket_fields{nullptr};

void SayPeerLost(const std::string& peer, const std::string& reason, const std::string& line) {
  LogLostPeer({peer, reason}, line);
}

}  // namespace

void LogLostPeer(const pipeline::LostPeer& peer, const std::string& line) {
  if (const Fields* fields = socket_fields.load()) {
    SendToJournal(LOG_ERR, line, *fields, {"LARDER_PEER=" + peer.socket, "LARDER_REASON=" + peer.reason});
  } else {
    spdlog::error("{}", line);
  }
}

bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat file = {};
  if (stream == nullptr || fstat(STDERR_FILENO, &file) != 0) return false;
  return fmt::format("{}:{}", file.st_dev, file.st_ino) == stream;
}

bool LogToJournal(const SocketFacts& facts) {
  if (!StderrIsJournal() || socket_fields.load() != nullptr) return socket_fields.load() != nullptr;
  const auto* fields = new Fields{"SYSLOG_IDENTIFIER=larder", "LARDER_CLUSTER=" + facts.cluster,
                                  "LARDER_SOCKET=" + facts.socket, "LARDER_ROLE=" + facts.role};
  socket_fields.store(fields);
  const auto level = spdlog::get_level();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("larder-journal", std::make_shared<JournalSink>(*fields)));
  spdlog::set_level(level);
  rdma::SetSayPeerLost(SayPeerLost);
  return true;
}

}  // namespace larder::node::service
