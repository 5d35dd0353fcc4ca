#include "serving/net/http_session.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <utility>

#include "base/control_char.h"
#include "serving/net/slot_routes.h"

namespace larder::serving::inline net {
namespace {

constexpr size_t kMostAhead = size_t{64} << 10;
// Limits of one turn: together at most about 0.3 ms, so that no other client's token waits longer.
constexpr int kRequestsPerTurn = 8;
constexpr size_t kDownloadBytes = size_t{128} << 10;   // piece of a file that is read at once
constexpr size_t kMostBatchBytes = size_t{64} << 10;   // limit for a body about files and batches:
                                                       // all that a batch may have, even escaped
constexpr size_t kBodyBytesPerTurn = size_t{4} << 10;  // below it one more request, of up to 8 KB,
                                                       // may begin

// The key of a request: OpenAI's clients send a bearer token, Anthropic's a header of its own.
std::string KeyOf(const HttpRequest& request) {
  const std::string& authorization = request.authorization;
  constexpr std::string_view kBearer = "Bearer ";  // in any case: RFC 9110 11.1
  if (boost::beast::iequals(std::string_view(authorization).substr(0, kBearer.size()), kBearer))
    return authorization.substr(kBearer.size());
  return request.api_key;
}

bool IsOfBatches(const Route* route) {
  return route != nullptr && (route->action == Action::kFiles || route->action == Action::kBatches);
}

bool IsHeaderValue(const std::string& text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), IsControlChar);
}

}  // namespace

HttpSession::HttpSession(Wire& wire, ServerState& state, const HttpLimits& limits)
    : wire_(wire), state_(state), parser_(limits) {}
HttpSession::~HttpSession() {
  *self_ = nullptr;
  ForgetFiles();
}

void HttpSession::ForgetFiles() {
  if (posted_ != 0) state_.batches->Forget(posted_);
}

void HttpSession::OnBytes(std::string_view bytes) {
  if (closed_) return;
  if (!answering_ && !later_ && !has_ahead()) bytes.remove_prefix(parser_.Feed(bytes));
  ahead_ += bytes;
  if (!answering_ && !later_) Proceed();
}

void HttpSession::AskLater() {
  if (later_) return;
  later_ = true;
  wire_.Later();
}

void HttpSession::OnTurn() {
  later_ = false;
  if (!download_.id.empty()) SendMore();
  if (!answering_) Proceed();
}

// Handles requests while there are complete ones, no answer is in progress and it is this client's
// turn.
void HttpSession::Proceed() {
  if (proceeding_) return;
  proceeding_ = true;
  int requests = 0;
  size_t body_bytes = 0;
  while (!answering_ && !closed_ && !wire_.full()) {
    if (!parser_.done() && parser_.error_status() == 0 && has_ahead()) {
      if (requests == kRequestsPerTurn || body_bytes >= kBodyBytesPerTurn) {
        AskLater();
        break;
      }
      ahead_at_ += parser_.Feed(std::string_view(ahead_).substr(ahead_at_));
      if (!has_ahead() || ahead_at_ >= kMostAhead / 2) {
        ahead_.erase(0, ahead_at_);
        ahead_at_ = 0;
      }
    }
    if (parser_.error_status() != 0) {
      Refuse(ErrorReply(parser_.error_status(), parser_.error(), {}, parser_.path()));
      break;
    }
    if (!parser_.done()) {  // refused by its header: a client that is not admitted need not send
                            // the body
      const auto header = parser_.NewHeader();
      if (const auto refusal = header ? Refusal(*header) : std::nullopt) {
        Refuse(*refusal);
        break;
      }
      try {
        if (header && IsUpload(*header)) BeginUpload(*header);
        if (upload_) TakeUpload(parser_.TakeBody());
      } catch (const Refused& why) {
        Refuse(ErrorReply(why, parser_.path()));
        break;
      }
    }
    if (parser_.wants_continue()) wire_.Write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!parser_.done()) break;
    request_ = parser_.Take();
    answering_ = true;
    ++requests_;
    ++requests;
    body_bytes += request_.body.size();
    Handle();
  }
  proceeding_ = false;
  // Nothing is left of what was sent, and nothing more comes.
  if (input_ended_ && !answering_ && !later_ && !wire_.full()) Leave();
}

// Why a request is refused by its header alone. nullopt: it is accepted, and its tenant is known.
std::optional<HttpReply> HttpSession::Refusal(const HttpRequest& request) {
  const std::string why_not = state_.access.WhyNot(request, !state_.api_keys.empty());
  if (!why_not.empty()) {
    state_.Denied(wire_.peer(), why_not);
    return ErrorReply(403, why_not, {}, request.path);
  }
  if (AsksFirst(request)) return {};
  const std::optional<Tenant> tenant = state_.api_keys.Find(KeyOf(request));
  if (!tenant && !IsPublic(request.path)) {
    state_.Denied(wire_.peer(), "HTTP without a good API key");
    const Route* route = FindRoute(request.path);
    if (route != nullptr && route->action == Action::kGenerate)
      state_.CountRefused(Protocol::kHttp);
    return ErrorReply(401, "the API key is missing or wrong; send it as Authorization: Bearer KEY",
                      {}, request.path);
  }
  tenant_ = tenant.value_or(kEverybody);
  return {};
}

// Whether this is a browser's preflight request for a page of a named origin.
bool HttpSession::AsksFirst(const HttpRequest& request) const {
  return request.method == "OPTIONS" && state_.access.IsNamed(request.origin);
}

void HttpSession::Handle() {
  // Checked again for a request whose header was accepted: keys may have changed while its body
  // arrived.
  if (const auto refusal = Refusal(request_)) return Send(*refusal);
  if (AsksFirst(request_)) {
    Send({.body = "",
          .headers = fmt::format(
              "Access-Control-Allow-Methods: GET, POST, DELETE\r\n"
              "Access-Control-Allow-Headers: {}\r\nAccess-Control-Max-Age: 600\r\n",
              IsHeaderValue(request_.wants_headers) ? request_.wants_headers
                                                    : "Authorization, Content-Type, X-Api-Key, "
                                                      "Anthropic-Version")});
    return;
  }
  const Route* route = FindRoute(request_.path);
  const bool generates = route != nullptr && route->action == Action::kGenerate;
  try {
    // The work on another thread needs a server that is ready.
    if (route != nullptr && route->reads_body && state_.service == nullptr)
      throw Refused(503, "Loading model");
    if (IsUpload(request_)) {
      if (!upload_) BeginUpload(request_);
      TakeUpload(std::exchange(request_.body, {}));
      upload_->End();
      return;
    }
    if (IsOfBatches(route)) return AnswerBatch();
    if (!generates) {
      Answer(route);
      return;
    }
    if (request_.method != "POST")
      throw Refused(405, "{} takes POST", request_.path).Allowing("POST");
    if (state_.service == nullptr) throw Refused(503, "Loading model");
  } catch (const Refused& refused) {
    if (generates) state_.CountRefused(Protocol::kHttp);
    SendError(refused);
    return;
  }
  dialect_ = route->dialect;
  auto prepared = std::make_shared<PreparedRequest>();
  prepared->text = std::exchange(request_.body, {});
  prepared->dialect = dialect_;
  if (dialect_ == Dialect::kResponses) prepared->find = TurnsOf(state_.responses, tenant_);
  Prepare(
      Protocol::kHttp, prepared->text.size(),
      [prepared, &defaults = state_.defaults] { prepared->Run(defaults); },
      [this, prepared](bool ok) { Generate(*prepared, ok); });
}

void HttpSession::SendError(const Refused& refused) { Send(ErrorReply(refused, request_.path)); }

// As ServerState::Prepare; `then` is not called once the session is destroyed or closed.
void HttpSession::Prepare(std::optional<Protocol> generating, size_t bytes,
                          const std::function<void()>& work,
                          const std::function<void(bool)>& then) {
  try {
    preparing_ = state_.Prepare(wire_.client(), bytes, work, [then, self = self_](bool ok) {
      if (*self != nullptr && !(*self)->closed_) then(ok);
    });
  } catch (const Refused& refused) {
    if (generating) state_.CountRefused(*generating);
    SendError(refused);
  }
}

void HttpSession::Answer(const Route* route) {
  auto request = std::make_shared<HttpRequest>();
  std::swap(request->body, request_.body);
  const size_t bytes = route == nullptr    ? 0
                       : route->is_slow    ? kInBackground
                       : route->reads_body ? request->body.size()
                                           : 0;
  request->target = request_.target;
  request->method = request_.method;
  request->path = request_.path;
  auto reply = std::make_shared<HttpReply>();
  Prepare(
      std::nullopt, bytes,
      [request, reply, &state = state_, tenant = tenant_] {
        try {
          *reply = AnswerRoute(*request, state, tenant);
        } catch (const Refused& refused) {
          *reply = ErrorReply(refused, request->path);
        } catch (const Error& error) {
          *reply = ErrorReply(400, error.what(), {}, request->path);
        }
      },
      [this, reply](bool ok) {
        Send(ok ? *reply : ErrorReply(500, kInternalError, {}, request_.path));
      });
}

void HttpSession::BeginUpload(const HttpRequest& header) {
  if (state_.batches == nullptr) throw Refused(501, "{}", kNoBatches);
  if (!state_.batches->ready()) throw Refused(503, "Loading model");
  upload_ = std::make_unique<FileUpload>(
      *state_.batches, wire_.client().peer(), tenant_, header.content_type,
      [failures = state_.failures](const std::string& why) {
        if (failures != nullptr) failures->Count("a file", why.c_str());
      },
      [this] { UploadChanged(); });
}

// Throws Refused.
void HttpSession::TakeUpload(std::string_view bytes) {
  uploaded_ += bytes.size();
  upload_->Feed(bytes);
  if (upload_->refused()) throw Refused(*upload_->refused());
}

// It has room again, is a file, or is refused.
void HttpSession::UploadChanged() {
  if (closed_) return;
  if (answering_) {
    if (upload_->refused()) return SendError(*upload_->refused());
    if (upload_->file()) Send({.body = Dump(upload_->file()->ToJson()), .headers = {}});
  } else if (upload_->refused()) {
    const Refused why = *upload_->refused();
    Refuse(ErrorReply(why, parser_.path()));
  } else {
    AskLater();
  }
}

void HttpSession::AnswerBatch() {
  if (state_.batches == nullptr) throw Refused(501, "{}", kNoBatches);
  if (!state_.batches->ready()) throw Refused(503, "Loading model");
  if (request_.body.size() > kMostBatchBytes)
    throw Refused(413, "the body is larger than the {} bytes that {} takes", kMostBatchBytes,
                  request_.path);
  auto request = std::make_shared<HttpRequest>();
  std::swap(request->body, request_.body);
  request->target = request_.target;
  request->method = request_.method;
  request->path = request_.path;
  auto answer = std::make_shared<BatchReply>();
  posted_ = state_.batches->Post(
      wire_.client().peer(),
      [request, answer, tenant = tenant_, failures = state_.failures](BatchService::Files& files) {
        try {
          *answer = AnswerBatchRoute(*request, tenant, files);
        } catch (const Refused& refused) {
          answer->reply = ErrorReply(refused, request->path);
        } catch (const Error& error) {  // an error of the disk: its text is not for the client
          if (failures != nullptr) failures->Count("a file", error.what());
          answer->reply =
              ErrorReply(500, "the server can't do this now; its log says why", {}, request->path);
        }
      },
      [answer, self = self_, batches = state_.batches](bool ok) {
        if (!answer->stopped.empty()) batches->Stop(answer->stopped);
        if (*self == nullptr || (*self)->closed_) return;
        HttpSession& session = **self;
        if (!ok) return session.Send(ErrorReply(500, kInternalError, {}, session.request_.path));
        if (answer->download.id.empty()) return session.Send(answer->reply);
        session.SendHeader(200, answer->reply,
                           fmt::format("Content-Length: {}\r\n", answer->download.bytes));
        if (session.request_.method == "HEAD") return session.EndAnswer();
        session.download_ = std::move(answer->download);
        session.SendMore();
      });
}

// Reads the next piece of the file if the client has read what it has.
void HttpSession::SendMore() {
  if (reading_ || closed_) return;
  if (download_.at == download_.bytes) {
    download_ = {};
    return EndAnswer();
  }
  if (wire_.full()) return;  // OnTurn comes when it isn't
  reading_ = true;
  auto piece = std::make_shared<std::string>(
      std::min<uint64_t>(kDownloadBytes, download_.bytes - download_.at), '\0');
  posted_ = state_.batches->Post(
      wire_.client().peer(),
      [piece, of = download_](BatchService::Files& files) { ReadPart(files.store, of, *piece); },
      [piece, self = self_](bool) {
        if (*self == nullptr || (*self)->closed_) return;
        HttpSession& session = **self;
        session.reading_ = false;
        if (piece->empty()) {  // deleted; less than was promised: the client must see that
          session.closed_ = true;
          session.download_ = {};
          return session.wire_.Close();
        }
        session.wire_.Write(*piece);
        session.download_.at += piece->size();
        session.SendMore();
      });
}

void HttpSession::Generate(PreparedRequest& prepared, bool ok) {
  try {
    if (!ok) throw Refused(500, "{}", kInternalError);
    if (prepared.refused) throw *prepared.refused;
    if (state_.metrics != nullptr) state_.metrics->IgnoredFields(prepared.request.ignored_fields);
    if (prepared.request.at_once != AtOnce::kNo)
      return Send({.body = Dump(AnswerAtOnce(state_.NewFacts(prepared.dialect), prepared.request)),
                   .headers = {}});
    for (GenerationSpec& spec : prepared.specs) spec.tenant = tenant_;
    admitted_ = ServerState::Admit(wire_.client(), prepared.request, prepared.specs);
    ReplyFacts facts = state_.NewFacts(prepared.dialect);
    facts.stored = prepared.request.store && state_.responses != nullptr;
    to_store_ =
        facts.stored ? BeginToStore(*state_.responses, facts, prepared.request) : ResponseToStore();
    CompletionSink& sink = *this;
    completion_ =
        std::make_unique<Completion>(*state_.service, prepared.request, std::move(prepared.specs),
                                     std::move(facts), Protocol::kHttp, sink);
  } catch (const Refused& refused) {
    state_.CountRefused(Protocol::kHttp);
    SendError(refused);
  } catch (const Error& error) {
    state_.CountRefused(Protocol::kHttp);
    SendError(Refused(400, "{}", error.what()));
  }
}

void HttpSession::OnEvent(const char* name, std::string object) {
  if (FramingOf(dialect_) == Framing::kLines) {
    SendPart(object += '\n');
  } else if (name == nullptr) {
    SendPart("data: " + object + "\n\n");
  } else {
    SendPart(fmt::format("event: {}\ndata: {}\n\n", name, object));
  }
}

void HttpSession::OnDone(const nlohmann::json* whole) {
  if (whole != nullptr) {
    Send({.body = Dump(*whole), .headers = {}});
    return;
  }
  if (FramingOf(dialect_) == Framing::kMarkedSse) SendPart("data: [DONE]\n\n");
  EndStream();
}

bool HttpSession::MakesElsewhere(const std::function<nlohmann::json()>& make) {
  if (!state_.in_background) return false;
  struct Made {
    std::string text;
    bool ok = false;
  };
  auto made = std::make_shared<Made>();
  preparing_ = state_.in_background(
      wire_.client().peer(),
      [make, made, failures = state_.failures] {
        try {
          made->text = Dump(make());
          made->ok = true;
        } catch (const std::exception& error) {
          if (failures != nullptr) failures->Count("an answer", error.what());
        }
      },
      [made, self = self_] {
        if (*self == nullptr || (*self)->closed_) return;
        HttpSession& session = **self;
        session.Send(made->ok ? HttpReply{.body = std::move(made->text), .headers = {}}
                              : ErrorReply(500,
                                           "the server failed to write this answer; its log says "
                                           "why",
                                           {}, session.request_.path));
      });
  return true;
}

void HttpSession::OnStored(const nlohmann::json& whole) {
  Store(*state_.responses, tenant_, std::move(to_store_), whole);
}

void HttpSession::OnFailure(int status, const std::string& message) {
  if (!streaming_) {
    Send(ErrorReply(status, message, {}, request_.path));
    return;
  }
  state_.CountError(Protocol::kHttp, status);
  completion_->SayFailed(status, message);
  EndStream();
}

void HttpSession::EndStream() {
  if (!request_.http10) wire_.Write("0\r\n\r\n");
  EndAnswer();
}

void HttpSession::SendHeader(int status, const HttpReply& reply, const std::string& framing) {
  std::string header =
      fmt::format("HTTP/1.1 {} {}\r\nServer: larder\r\n", status, StatusText(status));
  if (!reply.content_type.empty())
    header += fmt::format("Content-Type: {}\r\n", reply.content_type);
  if (state_.access.IsNamed(request_.origin) && IsHeaderValue(request_.origin))
    header += fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n", request_.origin);
  header += reply.headers + framing;
  header += request_.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  wire_.Write(header);
}

void HttpSession::Send(const HttpReply& reply) {
  if (reply.status >= 400) state_.CountError(Protocol::kHttp, reply.status);
  SendHeader(reply.status, reply, fmt::format("Content-Length: {}\r\n", reply.body.size()));
  if (request_.method != "HEAD") wire_.Write(reply.body);
  EndAnswer();
}

void HttpSession::SendPart(std::string_view data) {
  if (!streaming_) {
    streaming_ = true;
    if (request_.http10) request_.keep_alive = false;
    const bool lines = FramingOf(dialect_) == Framing::kLines;
    SendHeader(200,
               {.content_type = lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8",
                .body = {},
                .headers = "Cache-Control: no-cache\r\n"},
               request_.http10 ? "" : "Transfer-Encoding: chunked\r\n");
  }
  if (request_.http10) {
    wire_.Write(data);
  } else {
    wire_.Write(fmt::format("{:x}\r\n{}\r\n", data.size(), data));
  }
}

void HttpSession::EndAnswer() {
  completion_ = nullptr;
  to_store_ = {};
  upload_ = nullptr;
  admitted_ = {};
  preparing_ = nullptr;
  answering_ = streaming_ = false;
  if (!request_.keep_alive) {
    closed_ = true;
    wire_.Close();
    return;
  }
  // Not at once: many clients' answers may end in this turn.
  if (proceeding_) return;
  if (has_ahead()) {
    AskLater();
  } else if (input_ended_) {
    Leave();
  }
}

// A client that leaves and one that only shuts down its sending side (`nc -N`) look alike until
// something is sent to them: the first one's system answers with a reset, which ends the session,
// and so its work. So the first word of an answer that is still being made is sent now: an interim
// response, which every client of HTTP/1.1 has to pass over (RFC 9110 15.2). One of HTTP/1.0 can't,
// and counts as gone.
void HttpSession::OnEndOfInput() {
  input_ended_ = true;
  if (answering_ && request_.http10) return Leave();
  if (answering_ && !streaming_ && download_.id.empty())
    wire_.Write("HTTP/1.1 100 Continue\r\n\r\n");
  if (!answering_) Proceed();
}

// Ends the session, also in the middle of a request or an answer.
void HttpSession::Leave() {
  if (closed_) return;
  completion_ = nullptr;
  to_store_ = {};
  upload_ = nullptr;
  download_ = {};
  ForgetFiles();
  admitted_ = {};
  preparing_ = nullptr;
  closed_ = true;
  wire_.Close();
}

Turn HttpSession::turn() const {
  if (answering_) return Turn::kAnswering;
  return parser_.begun() || has_ahead() ? Turn::kReceiving : Turn::kIdle;
}

bool HttpSession::wants_bytes() const {
  if (upload_ && upload_->full()) return false;
  return !closed_ && ((!answering_ && !later_) || ahead_.size() - ahead_at_ < kMostAhead);
}

void HttpSession::Refuse(const HttpReply& reply) {
  request_ = {};
  request_.keep_alive = false;
  answering_ = true;
  Send(reply);
}

void HttpSession::OnTimeout() {
  if (turn() == Turn::kReceiving)
    Refuse(ErrorReply(408, "the request took too long to arrive", {}, parser_.path()));
}

// A comment of the stream, which clients and proxies take as a sign of life. (The HTML standard,
// "Server-sent events", names 15 seconds.) Anthropic's API has an event for it; Ollama's lines have
// nothing.
void HttpSession::OnQuiet() {
  if (!completion_ || !completion_->streams()) return;
  if (dialect_ == Dialect::kMessages) {
    OnEvent("ping", R"({"type":"ping"})");
  } else if (FramingOf(dialect_) != Framing::kLines) {
    SendPart(": still here\n\n");
  }
}

void HttpSession::OnNoRoom(Scope scope) {
  const Refused why = TooMuch(scope, "large requests");
  if (!answering_) Refuse(ErrorReply(why, parser_.path()));
}

}  // namespace larder::serving::net
