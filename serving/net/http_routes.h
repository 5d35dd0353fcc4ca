// The HTTP routes that answer at once: health, models, metrics, plan and status, the page, tokenize. Those
// that generate are HttpSession's. I/O thread.
#pragma once

#include <optional>
#include <string>

#include "serving/http/http_parser.h"
#include "serving/net/server_state.h"

namespace larder::serving {

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  std::string body;
  std::string headers;  // more of them, each with its line end
};

// The dialect of a route that generates; nothing: another route.
std::optional<Dialect> GeneratingRoute(const std::string& path);
// A route that works on the request's body and on nothing else that changes: any thread may answer it.
bool ReadsBody(const std::string& path);
// Throws Refused.
HttpReply AnswerRoute(const HttpRequest&, ServerState&);
HttpReply ErrorReply(int status, std::string_view message, std::string_view param = {});
// Without a key this far: what says that the server is up, and the page, which asks for the key.
bool IsPublic(const std::string& path);
const char* StatusText(int status);

}  // namespace larder::serving
