#include "serving/http/access.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
#include <cctype>
#include <optional>

#include "serving/fields/json_fields.h"

namespace larder::serving::inline http {
namespace {

using boost::asio::ip::make_address;

bool IsAddress(const std::string& text) {
  boost::system::error_code ec;
  make_address(text, ec);
  return !ec;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// "name:80", "[::1]:80" -> name, ::1; a final dot of a name is dropped.
std::string NameOf(std::string_view host) {
  if (host.starts_with('[')) return Lower(host.substr(1, host.find(']') - 1));
  std::string name = Lower(host.substr(0, host.find(':')));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

// What an origin has behind its scheme, which is http or https; nullopt: it has no such.
struct Origin {
  bool tls;
  std::string_view authority;
};
std::optional<Origin> OriginOf(std::string_view text) {
  const size_t slashes = text.find("://");
  if (slashes == std::string_view::npos) return std::nullopt;
  const std::string scheme = Lower(text.substr(0, slashes));
  if (scheme != "http" && scheme != "https") return std::nullopt;
  return Origin{.tls = scheme == "https", .authority = text.substr(slashes + 3)};
}

// Whether a page of `text` was served by `host`. The scheme is not compared: a proxy may
// terminate TLS.
bool IsSameOrigin(std::string_view text, std::string_view host) {
  const std::optional<Origin> origin = OriginOf(text);
  if (!origin) return false;
  const std::string_view port = origin->tls ? ":443" : ":80";
  const auto plain = [&](std::string_view authority) {
    if (authority.ends_with(port)) authority.remove_suffix(port.size());
    return Lower(authority);
  };
  return plain(origin->authority) == plain(host);
}

// Whether the page was served by the machine that its browser runs on.
bool IsOfThisMachine(std::string_view text) {
  const std::optional<Origin> origin = OriginOf(text);
  if (!origin) return false;
  std::string_view host = origin->authority;
  const size_t colon = host.find_last_not_of("0123456789");
  if (colon != std::string_view::npos && host[colon] == ':') host = host.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return IsLoopback(std::string(host));
}

std::string Shown(const std::string& text) { return Excerpt(nlohmann::json(text)); }

}  // namespace

bool Access::HostIsOurs(std::string_view host) const {
  const std::string name = NameOf(host);
  if (name == "localhost" || IsAddress(name)) return true;
  if (name.empty()) return false;
  // A name without a dot: other machines may know this one by such a name of their own network. It
  // cannot be registered in the public DNS, and someone who controls the local network's DNS can
  // reach us without a browser. On loopback such names are refused.
  if (name.find('.') == std::string::npos && !IsLoopback(options_.host)) return true;
  const auto is_it = [&](const std::string& known) { return NameOf(known) == name; };
  return is_it(options_.host) || std::any_of(options_.hosts.begin(), options_.hosts.end(), is_it);
}

bool Access::IsNamed(std::string_view origin) const {
  if (origin.empty()) return false;
  const auto& named = options_.cors_origins;
  return std::any_of(named.begin(), named.end(), [&](const std::string& one) {
    return one == "*" || one == origin || (one == "localhost" && IsOfThisMachine(origin));
  });
}

std::string Access::WhyNot(const HttpRequest& request, bool has_keys) const {
  if (!has_keys && !request.host.empty() && !HostIsOurs(request.host))
    return fmt::format(
        "the Host {} is not a name of this server: expected an IP address, localhost, or a name "
        "that the server was started with (--allowed-host NAME)",
        Shown(request.host));
  // A page cannot set Sec-Fetch-Site, and it stays right behind a proxy that changes Host.
  if (request.origin.empty() || IsNamed(request.origin) ||
      IsSameOrigin(request.origin, request.host) || request.fetch_site == "same-origin")
    return "";
  return fmt::format("pages of {} may not use this server: it was started without --cors-origin {}",
                     Shown(request.origin), Shown(request.origin));
}

bool IsLoopback(const std::string& host) {
  boost::system::error_code ec;
  const auto address = make_address(host, ec);
  return ec ? Lower(host) == "localhost" : address.is_loopback();
}

}  // namespace larder::serving::http
