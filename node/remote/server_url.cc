#include "node/remote/server_url.h"

#include <charconv>

#include "base/error.h"

namespace larder::node::inline remote {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr uint16_t kDefaultPort = 80;

}  // namespace

bool IsUrl(std::string_view text) { return text.find("://") != std::string_view::npos; }

ServeTarget ParseServerUrl(const std::string& url) {
  const auto wrong = [&](const char* why) {
    return Error("--server {}: {}; expected http://HOST:PORT", url, why);
  };
  if (url.starts_with("https://")) throw wrong("Larder speaks no TLS; let a proxy do it");
  if (!url.starts_with(kScheme)) throw wrong("not a URL");
  for (const char c : url) {  // what would end a line or a field of a header
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f)
      throw wrong("has a space or control character");
  }
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  ServeTarget target;
  const size_t slash = std::min(rest.find('/'), rest.size());
  target.path = rest.substr(slash);
  while (target.path.ends_with('/')) target.path.pop_back();
  if (target.path.find_first_of("?#") != std::string::npos) throw wrong("has a query");
  rest = rest.substr(0, slash);
  if (rest.find('@') != std::string_view::npos) throw wrong("has a user; give --api-key");
  std::string_view port;
  if (rest.starts_with('[')) {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) throw wrong("its [ is not closed");
    target.host = rest.substr(1, end - 1);
    port = rest.substr(end + 1);
  } else {
    const size_t colon = std::min(rest.find(':'), rest.size());
    target.host = rest.substr(0, colon);
    port = rest.substr(colon);
  }
  target.port = kDefaultPort;
  if (!port.empty()) {
    const char* end = port.data() + port.size();
    const auto [stop, failed] = std::from_chars(port.data() + 1, end, target.port);
    if (port[0] != ':' || failed != std::errc() || stop != end || target.port == 0)
      throw wrong("its port is not a number from 1 to 65535");
  }
  if (target.host.empty()) throw wrong("has no host");
  return target;
}

}  // namespace larder::node::remote
