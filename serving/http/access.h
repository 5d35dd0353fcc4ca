// Access: which web pages may use the server. Any page that a user opens can make the browser send
// requests from inside the user's network. The server answers its own page and those that the
// operator has named. No state; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/http/http_parser.h"

namespace larder::serving::inline http {

struct AccessOptions {
  std::string host = "127.0.0.1";  // where the server listens
  std::vector<std::string> hosts;  // other names of the server
  // Origins of pages that may use it, as browsers send them; "localhost": those that a server on
  // the browser's own machine has, on any port; "*": all.
  std::vector<std::string> cors_origins;
};

class Access {
 public:
  Access() = default;
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // Why the request is refused (403), in one line; empty: it is allowed. There are two checks. A
  // client that is not a browser passes both, since it sends no Origin, and the Host that it
  // connected to:
  // - Host must be a name of this server. Otherwise an attacker's name that resolves to this server
  //   (DNS rebinding) would make the attacker's page look like the server's own. IP addresses and
  //   localhost cannot be rebound. With keys the check is not needed: the attacker's page has no
  //   key.
  // - Origin, which a browser sends with every request that may change something, must be ours or
  //   be named.
  std::string WhyNot(const HttpRequest&, bool has_keys) const;
  // Whether the operator has named this origin; the browser must then be told so.
  bool IsNamed(std::string_view origin) const;

 private:
  bool HostIsOurs(std::string_view host) const;
  AccessOptions options_;
};

// Whether only programs on this machine can reach this address.
bool IsLoopback(const std::string& host);

}  // namespace larder::serving::http
