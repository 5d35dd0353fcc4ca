// Log lines: as text on stderr, as JSON (--log-format json), or as journal entries with fields. Any
// thread.
#pragma once

#include <spdlog/common.h>

#include <optional>
#include <string>
#include <string_view>

namespace larder::node::inline service {

// One JSON object a line on stderr from now on: time (RFC 3339, UTC), level, message, and the
// fields that a journal would get, once the process is a socket of a cluster: cluster, socket,
// role; of lost peers also peer and reason. It stays so if stderr is the journal.
void LogAsJson();
bool LogsAreJson();
// A line as LogAsJson writes it, without the line end.
std::string JsonLogLine(std::string_view level, std::string_view message);

// nullopt: not error, warn, info or debug.
std::optional<spdlog::level::level_enum> LogLevelByName(const std::string& name);
// Sets the level; SetLogLevel changes it no more.
void FixLogLevel(spdlog::level::level_enum level);
// The level that a command wants, unless the user has chosen one.
void SetLogLevel(spdlog::level::level_enum level);

}  // namespace larder::node::service
