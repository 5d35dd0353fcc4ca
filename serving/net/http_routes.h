// The HTTP routes that are answered at once: health, models, metrics, plan and status, the page,
// tokenize, Ollama's lists. HttpSession handles the routes that generate. I/O thread.
#pragma once

#include <string>
#include <string_view>

#include "serving/api/routes.h"
#include "serving/http/http_parser.h"
#include "serving/net/server_state.h"

namespace larder::serving::inline net {

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  std::string body;
  std::string headers;  // further headers, each with its line end
};

// Throws Refused. The route is not one that generates.
HttpReply AnswerRoute(const HttpRequest&, ServerState&, Tenant);
// An error in the form of the path's API.
HttpReply ErrorReply(int status, std::string_view message, std::string_view param = {},
                     std::string_view path = {});
HttpReply ErrorReply(const Refused&, std::string_view path);
// Whether the path needs no key: paths that tell whether the server is up, and the page, which asks
// for the key.
bool IsPublic(const std::string& path);
const char* StatusText(int status);

}  // namespace larder::serving::net
