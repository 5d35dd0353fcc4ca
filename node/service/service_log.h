// Log lines: as text on stderr, as JSON (--log-format json), or as journal entries with fields. Any
// thread.
#pragma once

#include <spdlog/common.h>

#include <optional>
#include <string>
#include <string_view>

namespace larder::node::inline service {

// Makes log lines JSON objects, one a line, on stderr: time (RFC 3339, UTC), level, message. Once
// the process is a socket of a cluster, also the fields that a journal would get: cluster, socket,
// role; for lost peers also peer and reason. The lines stay JSON even if stderr is the journal.
void LogAsJson();
bool LogsAreJson();
// A line as LogAsJson writes it, without the line end.
std::string JsonLogLine(std::string_view level, std::string_view message);

// nullopt unless it is error, warn, info or debug.
std::optional<spdlog::level::level_enum> LogLevelByName(const std::string& name);
// Sets the level for good; SetLogLevel then has no effect.
void FixLogLevel(spdlog::level::level_enum level);
// Sets the level that a command wants, unless the user has chosen one.
void SetLogLevel(spdlog::level::level_enum level);

}  // namespace larder::node::service
