#include "serving/net/text_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "base/utf8.h"
#include "serving/fields/json_fields.h"
#include "serving/reply/completion.h"

namespace larder::serving::inline net {

using nlohmann::json;

namespace {

constexpr size_t kTlsBytes = 2;  // enough to recognise TLS, whose bytes may have no line end for
                                 // long
// Limits of one turn: together at most about 0.3 ms, so that no other client's token waits longer.
constexpr int kLinesPerTurn = 16;
constexpr size_t kLineBytesPerTurn = size_t{4} << 10;  // below it one more line, of up to 8 KB, may
                                                       // begin

}  // namespace

// The answer to a plain prompt.
struct TextSession::Plain : GenerationListener {
  explicit Plain(TextSession& of) : session(of) {}
  void OnText(const GeneratedText& piece) override { session.wire_.Write(piece.text); }
  void OnEnd(const GenerationEnd& end) override {
    if (IsFailure(end.reason)) {
      session.FailPlain(StatusOf(end.reason), end.error);
    } else if (end.reason == FinishReason::kCancelled) {
      session.FailPlain(503, "the server is shutting down");
    } else {
      session.closed_ = true;
      session.wire_.Close();
    }
  }
  TextSession& session;
  Admitted admitted;
  GenerationHandle handle;
};

// The answer to a JSON request.
struct TextSession::Asked : CompletionSink {
  Asked(TextSession& of, json name)
      : session(of), id(std::move(name)), shown_id(",\"id\":" + Dump(id) + "}\n") {}
  void OnEvent(const char*, std::string object) override {
    object.pop_back();  // "}": chunks have no id of their own
    session.wire_.Write(object + shown_id);
  }
  void OnDone(const json* whole) override {
    if (whole != nullptr) {
      if (whole->is_array()) {
        for (const json& one : *whole) session.WriteLine(id, one);
      } else {
        session.WriteLine(id, *whole);
      }
    }
    session.Remove(this);
  }
  void OnFailure(int status, const std::string& message) override {
    session.WriteError(id, Refused(status, "{}", message));
    session.Remove(this);
  }
  TextSession& session;
  const json id;
  const std::string shown_id;  // the end of each line of the answer
  Admitted admitted;
  std::unique_ptr<Completion> completion;
};

// An id as the client gave it: a string or a number.
static json RequestId(const Json& value) {
  constexpr size_t kMostBytes = 256;
  if (value.is_string() && value.get_ref<const std::string&>().size() <= kMostBytes) return value;
  if (value.is_number()) return value;
  throw Refused(400, "id is {}: expected a number or a string of at most {} bytes", Excerpt(value),
                kMostBytes)
      .On("id");
}

// A line, prepared for the start of its generation, or the reason why it is refused. Run() uses no
// other state, so any thread may call it.
struct TextSession::PreparedLine {
  std::string line;
  bool ready = false;                  // the model is loaded
  const ApiKeys* wants_key = nullptr;  // null: no key is needed, or one was shown
  LineKind kind = LineKind::kBlank;
  size_t answered = 0, most_answered = 0;  // running requests of the connection, and their limit
  bool cancels = false;
  std::optional<json> id;  // as the client gave it; nullopt: it gave none; JSON null: it cannot be
                           // read
  std::optional<Tenant> tenant;  // tenant of the key in the line; nullopt: it has no valid key
  CompletionRequest request;
  std::vector<GenerationSpec> specs;
  std::optional<Refused> refused;

  void Run(const CompletionDefaults& defaults) {
    try {
      if (kind == LineKind::kPlain) {
        ReadPlain(defaults);
      } else {
        ReadJson(defaults);
      }
    } catch (const Refused& why) {
      refused = why;
    } catch (const Error& error) {
      refused = Refused(400, "{}", error.what());
    }
    line = {};
  }

  void ReadPlain(const CompletionDefaults& defaults) {
    if (!ready) throw Refused(503, "the model is loading; try again later");
    if (wants_key != nullptr)
      throw Refused(
          401, "this server wants an API key: send {{\"prompt\":\"...\",\"api_key\":\"...\"}}");
    if (!IsUtf8(line)) throw Refused(400, "the prompt is not UTF-8");
    request = PlainRequest(std::move(line), defaults);
    specs = MakeSpecs(request, defaults);
  }

  void ReadJson(const CompletionDefaults& defaults) {
    id = json();  // null until the id is read
    const Json body = ParseJson(line);
    const JsonFields fields(body);
    if (wants_key != nullptr) tenant = wants_key->Find(fields.String("api_key", ""));
    if (!tenant) throw Refused(401, "api_key is missing or wrong").On("api_key");
    cancels = fields.Has("cancel");
    const Json* name = fields.Find(cancels ? "cancel" : "id");
    if (name == nullptr) {
      id.reset();
    } else {
      id = RequestId(*name);
    }
    if (cancels) return;
    // Checked before the rest is parsed, which may be large.
    if (answered >= most_answered)
      throw Refused(
          429, "{} requests of this connection are being answered: no more are allowed at once",
          answered);
    if (!ready) throw Refused(503, "the model is loading; try again later");
    request = ReadCompletionRequest(body, Dialect::kNative, defaults);
    request.form.brief = true;
    request.stream = fields.Bool("stream", true);
    specs = MakeSpecs(request, defaults);
  }
};

LineKind KindOfLine(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return LineKind::kBlank;
  return line[first] == '{' ? LineKind::kJson : LineKind::kPlain;
}

const char* OtherProtocol(std::string_view line) {
  if (line.starts_with("\x16\x03")) return "TLS";
  if (line.starts_with("SSH-")) return "SSH";
  const size_t method = line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  if (method == 0 || method == std::string_view::npos || line[method] != ' ') return nullptr;
  const size_t target = line.find(' ', method + 1);
  if (target == std::string_view::npos || target == method + 1) return nullptr;
  std::string_view version = line.substr(target + 1);
  if (!version.starts_with("HTTP/")) return nullptr;
  version.remove_prefix(5);
  return version.size() == 3 && version.find_first_not_of("0123456789.") == version.npos ? "HTTP"
                                                                                         : nullptr;
}

TextSession::TextSession(Wire& wire, ServerState& state, const TextLimits& limits)
    : wire_(wire), state_(state), limits_(limits) {}
TextSession::~TextSession() { *self_ = nullptr; }

void TextSession::OnBytes(std::string_view bytes) {
  if (closed_ || plain_) return;
  input_ += bytes;
  if (!later_) Proceed();
}

void TextSession::AskLater() {
  if (later_) return;
  later_ = true;
  wire_.Later();
}

void TextSession::OnTurn() {
  later_ = false;
  Proceed();
}

// Handles lines while there are complete ones, none is being prepared and it is this client's turn.
// Lines are begun in order, so that `cancel` finds the request that it names.
void TextSession::Proceed() {
  if (proceeding_) return;
  proceeding_ = true;
  int lines = 0;
  size_t line_bytes = 0;
  while (!closed_ && !plain_ && !preparing_ && !wire_.full()) {
    const size_t end = input_.find('\n', at_ + scanned_);
    const size_t bytes = std::min(end, input_.size()) - at_;
    const bool whole = end != std::string::npos || (end_of_input_ && bytes > 0);
    if (bytes > limits_.line_bytes) {
      FailPlain(413, fmt::format("the line is longer than {} bytes", limits_.line_bytes));
    } else if (bytes > limits_.bytes_before_key &&
               !ShowsKey({input_.data() + at_, limits_.bytes_before_key})) {
      FailPlain(
          401, fmt::format(
                   "this server wants an API key: show it in the first {} bytes of the first line, "
                   "as {{\"api_key\":\"...\",\"prompt\":\"...\"}}",
                   limits_.bytes_before_key));
    } else if (!whole) {
      scanned_ = bytes;
      if (OtherProtocol(std::string_view(input_).substr(at_, kTlsBytes)) != nullptr)
        FailProtocol("TLS");
      break;
    } else if (lines == kLinesPerTurn || line_bytes >= kLineBytesPerTurn) {
      AskLater();
      break;
    } else {
      ++lines;
      line_bytes += bytes;
      std::string line = input_.substr(at_, bytes);
      at_ = std::min(end, input_.size() - 1) + 1;
      scanned_ = 0;
      OnLine(std::move(line));
    }
  }
  if (closed_ || plain_) at_ = input_.size();
  if (at_ > input_.size() / 2) {  // not for every line, or the rest would be moved again and again
    input_.erase(0, at_);
    at_ = 0;
    if (input_.empty()) input_.shrink_to_fit();
  }
  proceeding_ = false;
  CloseIfDone();
}

// Whether the client may send a large line: the bytes of a client that has shown no key are not
// kept.
bool TextSession::ShowsKey(std::string_view beginning) {
  if (tenant_ || state_.api_keys.empty()) return true;
  const auto key = FindTextField(beginning, "api_key");
  if (key) tenant_ = state_.api_keys.Find(*key);
  return tenant_.has_value();
}

void TextSession::OnLine(std::string line) {
  if (line.ends_with('\r')) line.pop_back();
  const LineKind kind = KindOfLine(line);
  if (kind == LineKind::kBlank) return;
  if (const char* other = kind == LineKind::kPlain ? OtherProtocol(line) : nullptr) {
    FailProtocol(other);
    return;
  }
  // If the client's key is no longer accepted, the client must show another.
  if (tenant_ && !state_.api_keys.Knows(*tenant_)) tenant_.reset();
  if (state_.api_keys.empty()) tenant_ = kEverybody;
  auto prepared = std::make_shared<PreparedLine>();
  prepared->kind = kind;
  prepared->ready = state_.service != nullptr;
  prepared->tenant = tenant_;
  prepared->wants_key = tenant_ ? nullptr : &state_.api_keys;
  prepared->line = std::move(line);
  prepared->answered = asked_.size();
  prepared->most_answered = limits_.requests;
  preparing_ = true;
  ++requests_;
  try {
    ticket_ = state_.Prepare(
        wire_.client(), prepared->line.size(),
        [prepared, &defaults = state_.defaults] { prepared->Run(defaults); },
        [prepared, self = self_](bool ok) {
          if (*self == nullptr) return;
          if (!ok) prepared->refused = Refused(500, "{}", kInternalError);
          (*self)->Take(*prepared);
        });
  } catch (const Refused& refused) {
    prepared->refused = refused;
    prepared->id = json();
    Take(*prepared);
  }
}

void TextSession::Take(PreparedLine& prepared) {
  preparing_ = false;
  ticket_ = nullptr;
  if (closed_) return;
  if (prepared.kind == LineKind::kPlain) {
    TakePlain(prepared);
  } else {
    TakeJson(prepared);
  }
  Proceed();
}

void TextSession::TakePlain(PreparedLine& prepared) {
  try {
    if (prepared.refused) throw *prepared.refused;
    if (!asked_.empty())
      throw Refused(400,
                    "a plain prompt can't follow JSON requests that are still being answered: wait "
                    "for their answers, or send it as JSON");
    plain_ = std::make_unique<Plain>(*this);
    prepared.specs[0].tenant = prepared.tenant.value_or(kEverybody);
    plain_->admitted = ServerState::Admit(wire_.client(), prepared.request, prepared.specs);
    plain_->handle =
        state_.service->Start(std::move(prepared.specs[0]), Protocol::kText, plain_.get());
  } catch (const Refused& refused) {
    state_.CountRefused(Protocol::kText);
    FailPlain(refused.status(), refused.what());
  } catch (const Error& error) {
    state_.CountRefused(Protocol::kText);
    FailPlain(400, error.what());
  }
}

void TextSession::TakeJson(PreparedLine& prepared) {
  if (prepared.tenant) tenant_ = prepared.tenant;
  const json id = prepared.id ? *prepared.id : json(next_id_++);
  try {
    if (prepared.refused) throw *prepared.refused;
    if (prepared.cancels) {
      Cancel(id);
    } else {
      Ask(prepared, id);
    }
  } catch (const Refused& refused) {
    if (!prepared.cancels) state_.CountRefused(Protocol::kText);
    WriteError(id, refused);
    if (refused.status() == 401) {
      state_.Denied(wire_.peer(), "the text stream without a good API key");
      closed_ = true;
      wire_.Close();
    }
  } catch (const Error& error) {
    state_.CountRefused(Protocol::kText);
    WriteError(id, Refused(400, "{}", error.what()));
  }
}

void TextSession::Ask(PreparedLine& prepared, const json& id) {
  for (const auto& one : asked_) {
    if (one->id == id)
      throw Refused(400, "id {} is already used by a request being answered", Excerpt(id)).On("id");
  }
  for (GenerationSpec& spec : prepared.specs) spec.tenant = *prepared.tenant;
  auto asked = std::make_unique<Asked>(*this, id);
  asked->admitted = ServerState::Admit(wire_.client(), prepared.request, prepared.specs);
  asked->completion =
      std::make_unique<Completion>(*state_.service, prepared.request, std::move(prepared.specs),
                                   state_.NewFacts(Dialect::kNative), Protocol::kText, *asked);
  asked_.push_back(std::move(asked));
}

void TextSession::Cancel(const json& id) {
  const auto found = std::find_if(asked_.begin(), asked_.end(),
                                  [&](const auto& asked) { return asked->id == id; });
  // An unknown id is not an error: the last line of that answer may be on its way.
  if (found != asked_.end()) (*found)->completion->Cancel();
}

void TextSession::Remove(const Asked* asked) {
  std::erase_if(asked_, [&](const auto& one) { return one.get() == asked; });
  CloseIfDone();
}

void TextSession::CloseIfDone() {
  if (!end_of_input_ || !asked_.empty() || plain_ || preparing_ || input_bytes() > 0 || closed_)
    return;
  closed_ = true;
  wire_.Close();
}

void TextSession::WriteLine(const json& id, json object) {
  object["id"] = id;
  wire_.Write(Dump(object) + "\n");
}

void TextSession::WriteError(const json& id, const Refused& why) {
  state_.CountError(Protocol::kText, why.status());
  WriteLine(id, ErrorJson(why));
}

void TextSession::FailPlain(int status, const std::string& why) {
  if (status == 401) state_.Denied(wire_.peer(), "the text stream without an API key");
  state_.CountError(Protocol::kText, status);
  closed_ = true;
  wire_.Write("error: " + why + "\n");
  wire_.Close();
}

// A browser that some page sent here, or a scanner. The following lines are not the text stream's
// either.
void TextSession::FailProtocol(const char* what) {
  FailPlain(
      400,
      fmt::format("this is {}: expected a line of the text stream (a prompt, or a request in JSON)",
                  what));
}

// A client whose tool shuts down its sending side still wants the answer. If the client is gone, a
// write fails.
void TextSession::OnEndOfInput() {
  end_of_input_ = true;
  if (!later_) Proceed();
}

// A client that has shut down its sending side may be gone. So its large line may wait only as long
// as a line may take to arrive.
Turn TextSession::turn() const {
  if (preparing_ && end_of_input_ && asked_.empty()) return Turn::kReceiving;
  if (plain_ || preparing_ || !asked_.empty()) return Turn::kAnswering;
  return input_bytes() == 0 ? Turn::kIdle : Turn::kReceiving;
}

// While a line is being prepared, the bytes of one more line are kept.
bool TextSession::wants_bytes() const {
  return !closed_ && !later_ && (!preparing_ || input_bytes() <= limits_.line_bytes);
}

void TextSession::OnNoRoom(Scope scope) {
  const Refused why = TooMuch(scope, "large requests");
  FailPlain(why.status(), why.what());
}

// A line without text for each stream. A plain prompt's answer is text alone: nothing can be said
// beside it.
void TextSession::OnQuiet() {
  for (const auto& asked : asked_) {
    if (asked->completion && asked->completion->streams())
      wire_.Write(R"({"content":"","stop":false)" + asked->shown_id);
  }
}

void TextSession::OnTimeout() {
  if (preparing_) {
    ticket_ = nullptr;
    state_.CountRefused(Protocol::kText);
    FailPlain(503, "too busy to read a large line; try again later");
    return;
  }
  if (turn() == Turn::kReceiving) {
    state_.CountError(Protocol::kText, 408);
    wire_.Write("error: the line took too long to arrive\n");
  }
  closed_ = true;
}

}  // namespace larder::serving::net
