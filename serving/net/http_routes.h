// The HTTP routes that are answered at once: health, models, metrics, plan and status, the page, tokenize.
// HttpSession handles the routes that generate. I/O thread.
#pragma once

#include <optional>
#include <string>

#include "serving/http/http_parser.h"
#include "serving/net/server_state.h"

namespace larder::serving::inline net {

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  std::string body;
  std::string headers;  // further headers, each with its line end
};

// The dialect of a route that generates; nullopt for other routes.
std::optional<Dialect> GeneratingRoute(const std::string& path);
// Whether the route uses no changing state but the request's body, so that any thread may answer it.
bool ReadsBody(const std::string& path);
// Throws Refused.
HttpReply AnswerRoute(const HttpRequest&, ServerState&);
HttpReply ErrorReply(int status, std::string_view message, std::string_view param = {});
// Whether the path needs no key: those that say whether the server is up, and the page, which asks for the
// key.
bool IsPublic(const std::string& path);
const char* StatusText(int status);

}  // namespace larder::serving::net
