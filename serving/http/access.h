// Access: which web pages may use the server. A browser sends requests for any page that a person opens, from
// inside the person's network; the page must be ours, or one that the operator has named. No state; any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/http/http_parser.h"

namespace larder::serving {

struct AccessOptions {
  std::string host = "127.0.0.1";         // that the server listens on
  std::vector<std::string> hosts;         // other names that it is called by
  std::vector<std::string> cors_origins;  // of pages that may use it, as browsers send them; "*": all
};

class Access {
 public:
  Access() = default;
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // Why the request is not answered (403), in a line; empty: it is. Two questions, and whoever is no browser
  // passes both, since it sends no Origin and the Host that it connected to:
  // - Its Host is ours. A name of somebody else that leads here (DNS rebinding) makes his page one of ours.
  // An
  //   IP address can't be rebound, nor can localhost. With keys it does not matter: his page has none.
  // - Its Origin, which a browser sends with all that may change something, is ours or is named.
  std::string WhyNot(const HttpRequest&, bool has_keys) const;
  // A page of another origin that was named: the browser wants to hear so.
  bool IsNamed(std::string_view origin) const;

 private:
  bool HostIsOurs(std::string_view host) const;
  AccessOptions options_;
};

// Nobody else can reach an address like this one.
bool IsLoopback(const std::string& host);

}  // namespace larder::serving
