// Log lines as journal entries with fields.
#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/syslog.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "node/service.h"

namespace larder::node {
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

class JournalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit JournalSink(const SocketFacts& facts)
      : fields_{"SYSLOG_IDENTIFIER=larder", "LARDER_CLUSTER=" + facts.cluster,
                "LARDER_SOCKET=" + facts.socket, "LARDER_ROLE=" + facts.role} {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string text =
        fmt::format("MESSAGE={}", std::string_view(message.payload.data(), message.payload.size()));
    const std::string priority = fmt::format("PRIORITY={}", Priority(message.level));
    std::vector<iovec> entry;
    auto add = [&](const std::string& field) {
      entry.push_back({const_cast<char*>(field.data()), field.size()});
    };
    add(text);
    add(priority);
    for (const std::string& field : fields_) add(field);
    sd_journal_sendv(entry.data(), static_cast<int>(entry.size()));
  }
  void flush_() override {}

 private:
  std::vector<std::string> fields_;
};

}  // namespace

bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat file = {};
  if (stream == nullptr || fstat(STDERR_FILENO, &file) != 0) return false;
  return fmt::format("{}:{}", file.st_dev, file.st_ino) == stream;
}

bool LogToJournal(const SocketFacts& facts) {
  if (!StderrIsJournal()) return false;
  const auto level = spdlog::get_level();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("larder-journal", std::make_shared<JournalSink>(facts)));
  spdlog::set_level(level);
  return true;
}

}  // namespace larder::node
