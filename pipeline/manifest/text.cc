#include "pipeline/manifest/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/control_char.h"
#include "pipeline/manifest/manifest.h"

namespace larder::pipeline::inline manifest {
namespace {

constexpr size_t kShownBytes = 60;

}  // namespace

std::string Shown(std::string_view text) {
  size_t end = std::min(text.size(), kShownBytes);
  if (end < text.size()) {  // does not cut a UTF-8 character
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  }
  std::string shown;
  for (const char c : text.substr(0, end)) shown += IsControlChar(c) ? '?' : c;
  return end < text.size() ? shown + "..." : shown;
}

std::string At(const std::string& path, int line, const std::string& where) {
  std::string at = path.empty() ? "manifest" : path;
  if (line > 0) at += fmt::format(":{}", line);
  if (!where.empty()) at += ": " + where;
  return at;
}

std::string AtSocket(const Manifest& manifest, const ServerSpec& server, const SocketSpec& socket) {
  return At(manifest.path, socket.line,
            fmt::format("server \"{}\", socket \"{}\"", server.name, socket.name));
}

}  // namespace larder::pipeline::manifest
