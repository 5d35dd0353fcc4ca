#include "serving/net/http_routes.h"

#include <algorithm>
#include <charconv>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "serving/api/common_fields.h"
#include "serving/api/completion_request.h"
#include "serving/fields/constraints.h"
#include "serving/metrics/experts.h"
#include "serving/net/slot_routes.h"
#include "serving/net/text_session.h"
#include "serving/page/page.h"
#include "serving/reply/settings.h"
#include "serving/stored/stored_responses.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

void WantReady(const ServerState& state) {
  if (state.service == nullptr) throw Refused(503, "Loading model");
}

HttpReply JsonReply(const json& value, int status = 200) {
  return {.status = status, .body = Dump(value), .headers = {}};
}

HttpReply Health(const HttpRequest&, ServerState& state) {
  if (state.service == nullptr) {
    json reply = ErrorJson(503, "Loading model");
    reply["status"] = "loading";
    reply["loading"] = {{"what", state.loading_what}, {"share", state.loading_share}};
    return JsonReply(reply, 503);
  }
  if (state.service->draining()) {
    json reply = ErrorJson(503, "the server is shutting down");
    reply["status"] = "draining";
    return JsonReply(reply, 503);
  }
  if (const auto outage = state.service->outage()) {
    json reply = ErrorJson(503, outage->why);
    reply["status"] = "connecting";
    reply["seconds"] = SecondsSince(outage->since_ns);
    return JsonReply(reply, 503);
  }
  return JsonReply({{"status", "ok"}});
}

json ModelJson(const ServerState& state) {
  return {{"id", state.defaults.model},
          {"object", "model"},
          {"created", state.created},
          {"owned_by", "larder"},
          {"aliases", state.defaults.said_aliases},
          {"tags", state.defaults.tags},
          {"max_model_len", state.defaults.context},
          {"meta", {{"n_vocab", state.defaults.vocab}, {"n_ctx", state.defaults.context}}}};
}

HttpReply Models(const HttpRequest&, ServerState& state) {
  WantReady(state);
  return JsonReply({{"object", "list"}, {"data", json::array({ModelJson(state)})}});
}

// %2F is a slash: names of models have some.
std::string Decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

HttpReply Model(const HttpRequest& request, ServerState& state) {
  const std::string name = Decoded(request.path.substr(std::string_view("/v1/models/").size()));
  WantReady(state);
  if (!IsModel(name, state.defaults))
    throw Refused(404, "the model {} does not exist here; this server has {}", Excerpt(name),
                  Excerpt(state.defaults.model))
        .On("model");
  return JsonReply(ModelJson(state));
}

HttpReply Metrics(const HttpRequest&, ServerState& state) {
  WantReady(state);
  if (state.fill_metrics) state.fill_metrics(*state.metrics);
  if (state.admission != nullptr) state.metrics->SetAdmission(*state.admission);
  state.metrics->SetGrammars(KeptGrammarBytes(), state.service->automata_bytes());
  if (state.failures != nullptr) state.metrics->SetFailures(state.failures->count());
  if (state.batches != nullptr) state.metrics->SetBatches(state.batches->counts());
  if (state.responses != nullptr)
    state.metrics->SetResponses(state.responses->size(), state.responses->bytes());
  return {.content_type = ServingMetrics::kContentType,
          .body = state.metrics->Render(),
          .headers = fmt::format("Process-Start-Time-Unix: {}\r\n", state.created)};
}

HttpReply Plan(const HttpRequest&, ServerState& state) {
  WantReady(state);
  return JsonReply(state.plan);
}

std::vector<ExpertCounts> ExpertsOf(const ServerState& state) {
  WantReady(state);
  return state.experts ? state.experts() : std::vector<ExpertCounts>();
}

HttpReply Experts(const HttpRequest&, ServerState& state) {
  return JsonReply(ExpertsJson(ExpertsOf(state)));
}

HttpReply ExpertMetrics(const HttpRequest&, ServerState& state) {
  return {.content_type = ServingMetrics::kContentType,
          .body = ExpertsText(ExpertsOf(state)),
          .headers = {}};
}

HttpReply Status(const HttpRequest&, ServerState& state) {
  return JsonReply(ServerStatusJson(state.Status()));
}

json ParamsJson(const CompletionDefaults& defaults) {
  json params = SamplingJson(defaults.sampling);
  params.update({{"seed", defaults.seed ? json(*defaults.seed) : json(-1)},
                 {"n_predict", defaults.max_tokens},
                 {"max_tokens", defaults.max_tokens},
                 {"stop", json::array()},
                 {"stream", true}});
  return params;
}

HttpReply Props(const HttpRequest&, ServerState& state) {
  WantReady(state);
  const CompletionDefaults& defaults = state.defaults;
  const model::Tokenizer& tokenizer = *defaults.tokenizer;
  const auto text = [&](TokenId id) { return id < 0 ? std::string() : tokenizer.Piece(id, true); };
  return JsonReply(
      {{"model_alias", defaults.model},
       {"model_path", defaults.aliases.empty() ? defaults.model : defaults.aliases.back()},
       {"total_slots", state.service->options().slots},
       {"chat_template", defaults.chat_template->source()},
       {"chat_template_caps", ChatCapsJson(*defaults.chat_template)},
       {"modalities", {{"vision", false}, {"audio", false}}},
       {"bos_token", text(tokenizer.bos())},
       {"eos_token", text(tokenizer.eos())},
       {"default_generation_settings",
        {{"id", 0},
         {"id_task", -1},
         {"n_ctx", defaults.context},
         {"speculative", false},
         {"is_processing", false},
         {"params", ParamsJson(defaults)}}},
       {"is_sleeping", false},
       {"build_info", "larder " + state.version}});
}

HttpReply Slots(const HttpRequest&, ServerState& state) {
  WantReady(state);
  const StatusView view = state.Status();
  const std::vector<int64_t> left = state.service->tokens_left();
  json slots = json::array();
  for (size_t i = 0; i < view.slots.size(); ++i) {
    const SlotView& slot = view.slots[i];
    const bool idle = slot.state == SlotView::State::kIdle;
    const json next = {{"n_decoded", idle ? 0 : slot.generated_tokens},
                       {"n_remain", idle || i >= left.size() ? -1 : left[i]}};
    slots.push_back({{"id", i},
                     {"n_ctx", state.defaults.context},
                     {"speculative", false},
                     {"is_processing", !idle},
                     {"state", idle                                      ? "idle"
                               : slot.state == SlotView::State::kPrefill ? "prefill"
                                                                         : "decode"},
                     {"n_cached", slot.cached_tokens},
                     {"next_token", json::array({next})}});
  }
  return JsonReply(slots);
}

HttpReply Tokenize(const HttpRequest& request, ServerState& state) {
  WantReady(state);
  const Json body = ParseJson(request.body);
  const JsonFields fields(body);
  const model::Tokenizer& tokenizer = *state.defaults.tokenizer;
  if (fields.Has("prompt")) {  // vLLM's form
    const auto tokens =
        tokenizer.Encode(fields.String("prompt", ""),
                         fields.Bool("add_special_tokens", true) && tokenizer.wants_bos(),
                         /*parse_special=*/true);
    return JsonReply(
        {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", state.defaults.context}});
  }
  const auto tokens =
      tokenizer.Encode(fields.String("content", ""), fields.Bool("add_special", false),
                       fields.Bool("parse_special", true));
  if (!fields.Bool("with_pieces", false)) return JsonReply({{"tokens", tokens}});
  json list = json::array();
  for (const TokenId token : tokens) {
    const std::string piece = tokenizer.Piece(token, true);
    // A piece that is no text by itself: its bytes.
    json shown = piece;
    if (!IsUtf8(piece)) {
      shown = json::array();
      for (const char c : piece) shown.push_back(static_cast<unsigned char>(c));
    }
    list.push_back({{"id", token}, {"piece", shown}});
  }
  return JsonReply({{"tokens", list}});
}

HttpReply Detokenize(const HttpRequest& request, ServerState& state) {
  WantReady(state);
  const Json body = ParseJson(request.body);
  const Json* list = JsonFields(body).Find("tokens");
  if (list == nullptr || !list->is_array())
    throw Refused(400, "tokens: expected an array of token ids").On("tokens");
  std::vector<TokenId> tokens;
  for (const Json& token : *list)
    tokens.push_back(static_cast<TokenId>(
        ToInteger(token, "tokens", 0, static_cast<int64_t>(state.defaults.tokenizer->size()) - 1)));
  const std::string text = state.defaults.tokenizer->Decode(tokens, /*special=*/true);
  return JsonReply({{"content", text}, {"prompt", text}});  // llama-server's name and vLLM's
}

// vLLM's, by which programs that count tokens need no tokenizer of their own.
HttpReply TokenizerInfo(const HttpRequest&, ServerState& state) {
  WantReady(state);
  const model::Tokenizer& tokenizer = *state.defaults.tokenizer;
  const auto text = [&](TokenId id) { return id < 0 ? json() : json(tokenizer.Piece(id, true)); };
  return JsonReply({{"bos_token", text(tokenizer.bos())},
                    {"eos_token", text(tokenizer.eos())},
                    {"add_bos_token", tokenizer.wants_bos()},
                    {"chat_template", state.defaults.chat_template->source()},
                    {"model_max_length", state.defaults.context}});
}

HttpReply CountTokens(const HttpRequest& request, ServerState& state, Tenant tenant) {
  WantReady(state);
  const Dialect dialect = FindRoute(request.path)->dialect;
  CompletionRequest asked = ReadCompletionRequest(ParseJson(request.body), dialect, state.defaults,
                                                  TurnsOf(state.responses, tenant));
  const size_t tokens = CountPromptTokens(asked, state.defaults);
  if (dialect == Dialect::kMessages) return JsonReply({{"input_tokens", tokens}});
  return JsonReply({{"object", "response.input_tokens"}, {"input_tokens", tokens}});
}

HttpReply ApplyTemplate(const HttpRequest& request, ServerState& state) {
  WantReady(state);
  const CompletionRequest asked =
      ReadCompletionRequest(ParseJson(request.body), Dialect::kChat, state.defaults);
  return JsonReply({{"prompt", model::JoinPieces(RenderedChat(asked, state.defaults))}});
}

// What Ollama's clients want to know of a model.
json OllamaDetails(const CompletionDefaults& of) {
  const double millions = static_cast<double>(of.parameters) * 1e-6;
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", of.architecture},
          {"families", json::array({of.architecture})},
          {"parameter_size", millions < 1000 ? fmt::format("{:.1f}M", millions)
                                             : fmt::format("{:.1f}B", millions / 1000)},
          {"quantization_level", ""}};
}

json OllamaModel(const ServerState& state) {
  return {{"name", state.defaults.model},
          {"model", state.defaults.model},
          {"size", state.defaults.file_bytes},
          {"digest", fmt::format("{:016x}{:048x}", state.defaults.fingerprint, 0)},
          {"details", OllamaDetails(state.defaults)}};
}

HttpReply OllamaTags(const HttpRequest&, ServerState& state) {
  WantReady(state);
  json model = OllamaModel(state);
  model["modified_at"] = Rfc3339(state.created);
  return JsonReply({{"models", json::array({model})}});
}

HttpReply OllamaPs(const HttpRequest&, ServerState& state) {
  WantReady(state);
  json model = OllamaModel(state);
  model["expires_at"] = "9999-12-31T23:59:59Z";
  model["size_vram"] = 0;
  model["context_length"] = state.defaults.context;
  return JsonReply({{"models", json::array({model})}});
}

HttpReply OllamaVersion(const HttpRequest&, ServerState&) {
  // A version of Ollama's, since clients compare it: the one whose API this is.
  return JsonReply({{"version", "0.13.0"}});
}

HttpReply OllamaShow(const HttpRequest& request, ServerState& state) {
  WantReady(state);
  const Json body = ParseJson(request.body);
  const JsonFields fields(body);
  CheckModel(fields.String("model", fields.String("name", "")), Dialect::kOllamaChat,
             state.defaults);
  json capabilities = json::array({"completion"});
  const json caps = ChatCapsJson(*state.defaults.chat_template);
  if (caps.value("supports_tools", false)) capabilities.push_back("tools");
  if (caps.value("supports_thinking", false)) capabilities.push_back("thinking");
  const model::Pooling pooling = state.defaults.pooling;
  if (pooling != model::Pooling::kNone && pooling != model::Pooling::kRank)
    capabilities.push_back("embedding");
  return JsonReply({{"modelfile", ""},
                    {"parameters", ""},
                    {"template", state.defaults.chat_template->source()},
                    {"license", ""},
                    {"modified_at", Rfc3339(state.created)},
                    {"details", OllamaDetails(state.defaults)},
                    {"model_info",
                     {{"general.architecture", state.defaults.architecture},
                      {"general.basename", state.defaults.model},
                      {"general.parameter_count", state.defaults.parameters},
                      {state.defaults.architecture + ".context_length", state.defaults.context}}},
                    {"capabilities", capabilities}});
}

// An answer that took T to make is given again for kKeptTimes * T. So however often it is
// requested, the I/O thread, which also sends all tokens, spends at most a fiftieth of its time on
// it.
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
  state.kept_answers[request.path] = {
      reply.content_type, reply.body,
      end_ns + std::min(kKeptNsAtMost, kKeptTimes * (end_ns - begin_ns))};
  return reply;
}

HttpReply Answer(Action action, const HttpRequest& request, ServerState& state, Tenant tenant) {
  switch (action) {
    case Action::kGenerate:
    case Action::kFiles:
    case Action::kBatches:  // AnswerBatchRoute
      break;
    case Action::kCountTokens:
      return CountTokens(request, state, tenant);
    case Action::kStored:
      WantReady(state);
      return {.body = AnswerStoredResponse(request, state.responses, tenant), .headers = {}};
    case Action::kApplyTemplate:
      return ApplyTemplate(request, state);
    case Action::kHealth:
      return Health(request, state);
    case Action::kModels:
      return Models(request, state);
    case Action::kModel:
      return Model(request, state);
    case Action::kMetrics:
      return Kept<Metrics>(request, state);
    case Action::kPlan:
      return Kept<Plan>(request, state);
    case Action::kExperts:
      return Kept<Experts>(request, state);
    case Action::kExpertMetrics:
      return Kept<ExpertMetrics>(request, state);
    case Action::kStatus:
      return Kept<Status>(request, state);
    case Action::kProps:
      return Kept<Props>(request, state);
    case Action::kSlots:
      return Kept<Slots>(request, state);
    case Action::kSlotAction:
      return AnswerSlotAction(request, state, tenant);
    case Action::kTokenize:
      return Tokenize(request, state);
    case Action::kDetokenize:
      return Detokenize(request, state);
    case Action::kTokenizerInfo:
      return Kept<TokenizerInfo>(request, state);
    case Action::kOllamaTags:
      return OllamaTags(request, state);
    case Action::kOllamaShow:
      return OllamaShow(request, state);
    case Action::kOllamaPs:
      return OllamaPs(request, state);
    case Action::kOllamaVersion:
      return OllamaVersion(request, state);
  }
  throw Refused(405, "{} takes POST", request.path).Allowing("POST");
}

}  // namespace

bool IsPublic(const std::string& path) {
  const Route* route = FindRoute(path);
  return (route != nullptr && route->is_public) || FindPageFile(path) != nullptr;
}

HttpReply AnswerRoute(const HttpRequest& request, ServerState& state, Tenant tenant) {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const PageFile* file = method == "GET" && state.has_page ? FindPageFile(request.path) : nullptr;
  if (file != nullptr) {
    return {
        .content_type = std::string(file->content_type),
        .body = std::string(file->text),
        .headers = fmt::format("Content-Security-Policy: {}\r\nX-Content-Type-Options: nosniff\r\n"
                               "Cache-Control: no-cache\r\n",
                               kPageSecurityPolicy)};
  }
  const Route* route = FindRoute(request.path);
  if (route == nullptr) throw Refused(404, "there is no {}", Excerpt(request.path));
  if (method != route->method && route->action != Action::kStored)
    throw Refused(405, "{} takes {}, not {}", route->path, route->method, Excerpt(request.method))
        .Allowing(std::string(route->method));
  if (route->action == Action::kSlots && !state.shows_slots)
    throw Refused(501, "this server does not show its slots: start it without --no-slots-endpoint");
  return Answer(route->action, request, state, tenant);
}

HttpReply ErrorReply(int status, std::string_view message, std::string_view param,
                     std::string_view path) {
  return ErrorReply(Refused(status, "{}", message).On(std::string(param)), path);
}

HttpReply ErrorReply(const Refused& why, std::string_view path) {
  const int status = why.status();
  HttpReply reply = JsonReply(ErrorJson(why, ErrorShapeOf(path)), status);
  if (status == 503 || status == 429) reply.headers = "Retry-After: 1\r\n";
  if (status == 401) reply.headers = "WWW-Authenticate: Bearer\r\n";
  if (!why.methods().empty()) reply.headers += fmt::format("Allow: {}\r\n", why.methods());
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
    case 409:
      return "Conflict";
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
