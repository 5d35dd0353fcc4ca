#include "serving/net/http_routes.h"

#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "serving/api/json_fields.h"
#include "serving/page/page.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

void WantReady(const ServerState& state) {
  if (state.service == nullptr) throw Refused(503, "Loading model");
}

HttpReply Json(const json& value, int status = 200) {
  return {.status = status, .body = Dump(value), .headers = {}};
}

HttpReply Health(const HttpRequest&, ServerState& state) {
  if (state.service == nullptr) {
    json reply = ErrorJson(503, "Loading model");
    reply["status"] = "loading";
    reply["loading"] = {{"what", state.loading_what}, {"share", state.loading_share}};
    return Json(reply, 503);
  }
  if (state.service->draining()) {
    json reply = ErrorJson(503, "the server is shutting down");
    reply["status"] = "draining";
    return Json(reply, 503);
  }
  if (const auto outage = state.service->outage()) {
    json reply = ErrorJson(503, outage->why);
    reply["status"] = "connecting";
    reply["seconds"] = SecondsSince(outage->since_ns);
    return Json(reply, 503);
  }
  return Json({{"status", "ok"}});
}

HttpReply Models(const HttpRequest&, ServerState& state) {
  WantReady(state);
  const json one = {{"id", state.defaults.model},
                    {"object", "model"},
                    {"created", state.created},
                    {"owned_by", "larder"},
                    {"max_model_len", state.defaults.context},
                    {"meta", {{"n_vocab", state.defaults.vocab}, {"n_ctx", state.defaults.context}}}};
  return Json({{"object", "list"}, {"data", json::array({one})}});
}

HttpReply Model(const HttpRequest& request, ServerState& state) {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  json all = json::parse(Models(request, state).body);
  if (name != state.defaults.model)
    throw Refused(404, "the model {} does not exist here; this server has {}", Excerpt(name),
                  Excerpt(state.defaults.model))
        .On("model");
  return Json(all["data"][0]);
}

HttpReply Metrics(const HttpRequest&, ServerState& state) {
  WantReady(state);
  if (state.fill_metrics) state.fill_metrics(*state.metrics);
  if (state.admission != nullptr) state.metrics->SetAdmission(*state.admission);
  if (state.failures != nullptr) state.metrics->SetFailures(state.failures->count());
  return {.content_type = ServingMetrics::kContentType, .body = state.metrics->Render(), .headers = {}};
}

HttpReply Plan(const HttpRequest&, ServerState& state) {
  WantReady(state);
  return Json(state.plan);
}

HttpReply Status(const HttpRequest&, ServerState& state) { return Json(ServerStatusJson(state.Status())); }

HttpReply Props(const HttpRequest&, ServerState& state) {
  WantReady(state);
  return Json({{"model_alias", state.defaults.model},
               {"total_slots", state.service->options().slots},
               {"chat_template", state.defaults.tokenizer->chat_template()},
               {"default_generation_settings", {{"n_ctx", state.defaults.context}}},
               {"build_info", "larder " + state.version}});
}

HttpReply Tokenize(const HttpRequest& request, ServerState& state) {
  WantReady(state);
  const json body = ParseJson(request.body);
  const JsonFields fields(body);
  const auto tokens = state.defaults.tokenizer->Encode(
      fields.String("content", ""), fields.Bool("add_special", false), fields.Bool("parse_special", true));
  return Json({{"tokens", tokens}});
}

HttpReply Detokenize(const HttpRequest& request, ServerState& state) {
  WantReady(state);
  const json body = ParseJson(request.body);
  const json* list = JsonFields(body).Find("tokens");
  if (list == nullptr || !list->is_array())
    throw Refused(400, "tokens: expected an array of token ids").On("tokens");
  std::vector<TokenId> tokens;
  for (const json& token : *list)
    tokens.push_back(static_cast<TokenId>(
        ToInteger(token, "tokens", 0, static_cast<int64_t>(state.defaults.tokenizer->size()) - 1)));
  return Json({{"content", state.defaults.tokenizer->Decode(tokens)}});
}

// An answer that took T to make is given again for kKeptTimes * T. So however often it is requested, the I/O
// thread, which also sends all tokens, spends at most a fiftieth of its time on it.
constexpr int64_t kKeptTimes = 50;
constexpr int64_t kKeptNsAtMost = 100'000'000;

template <HttpReply (*answer)(const HttpRequest&, ServerState&)>
HttpReply Kept(const HttpRequest& request, ServerState& state) {
  const int64_t begin_ns = NowNs();
  if (const auto kept = state.kept_answers.find(request.path);
      kept != state.kept_answers.end() && begin_ns < kept->second.until_ns)
    return {.content_type = kept->second.content_type, .body = kept->second.body, .headers = {}};
  HttpReply reply = answer(request, state);
  const int64_t end_ns = NowNs();
  state.kept_answers[request.path] = {reply.content_type, reply.body,
                                      end_ns + std::min(kKeptNsAtMost, kKeptTimes * (end_ns - begin_ns))};
  return reply;
}

struct Route {
  const char* method;
  std::string_view path;  // with a final '/': all paths below it too
  HttpReply (*answer)(const HttpRequest&, ServerState&);
};
constexpr Route kRoutes[] = {{"GET", "/health", Health},
                             {"GET", "/v1/health", Health},
                             {"GET", "/v1/models", Models},
                             {"GET", "/models", Models},
                             {"GET", "/v1/models/", Model},
                             {"GET", "/metrics", Kept<Metrics>},
                             {"GET", "/v1/larder/plan", Kept<Plan>},
                             {"GET", "/v1/larder/status", Kept<Status>},
                             {"GET", "/props", Kept<Props>},
                             {"POST", "/tokenize", Tokenize},
                             {"POST", "/detokenize", Detokenize}};

bool Matches(const Route& route, std::string_view path) {
  return route.path.ends_with('/') ? path.starts_with(route.path) : path == route.path;
}

}  // namespace

std::optional<Dialect> GeneratingRoute(const std::string& path) {
  if (path == "/v1/completions") return Dialect::kCompletion;
  if (path == "/v1/chat/completions" || path == "/chat/completions") return Dialect::kChat;
  if (path == "/completion" || path == "/completions") return Dialect::kNative;
  return std::nullopt;
}

bool IsPublic(const std::string& path) {
  return path == "/health" || path == "/v1/health" || path == "/v1/models" || path == "/models" ||
         FindPageFile(path) != nullptr;
}

bool ReadsBody(const std::string& path) { return path == "/tokenize" || path == "/detokenize"; }

HttpReply AnswerRoute(const HttpRequest& request, ServerState& state) {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  if (const PageFile* file = method == "GET" ? FindPageFile(request.path) : nullptr) {
    return {.content_type = std::string(file->content_type),
            .body = std::string(file->text),
            .headers = fmt::format("Content-Security-Policy: {}\r\nX-Content-Type-Options: nosniff\r\n"
                                   "Cache-Control: no-cache\r\n",
                                   kPageSecurityPolicy)};
  }
  const auto* route = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                   [&](const Route& r) { return Matches(r, request.path); });
  if (route == std::end(kRoutes)) throw Refused(404, "there is no {}", Excerpt(request.path));
  if (method != route->method)
    throw Refused(405, "{} takes {}, not {}", route->path, route->method, Excerpt(request.method));
  return route->answer(request, state);
}

HttpReply ErrorReply(int status, std::string_view message, std::string_view param) {
  HttpReply reply = Json(ErrorJson(status, message, param), status);
  if (status == 503 || status == 429) reply.headers = "Retry-After: 1\r\n";
  if (status == 401) reply.headers = "WWW-Authenticate: Bearer\r\n";
  return reply;
}

const char* StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

}  // namespace larder::serving::net
