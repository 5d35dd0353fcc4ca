#include "serving/text_session.h"

#include <algorithm>
#include <utility>

#include "serving/completion.h"
#include "serving/json_fields.h"

namespace larder::serving {

using nlohmann::json;

// A plain prompt's answer.
struct TextSession::Plain : GenerationListener {
  explicit Plain(TextSession& of) : session(of) {}
  void OnText(std::string_view text, const std::vector<TokenLogprobs>&, size_t) override {
    session.wire_.Write(text);
  }
  void OnEnd(const GenerationEnd& end) override {
    if (end.reason == FinishReason::kFailed || end.reason == FinishReason::kRefused) {
      session.FailPlain(end.error);
    } else if (end.reason == FinishReason::kCancelled) {
      session.FailPlain("the server is shutting down");
    } else {
      session.closed_ = true;
      session.wire_.Close();
    }
  }
  TextSession& session;
  GenerationHandle handle;
};

// A JSON request's answer.
struct TextSession::Asked : CompletionSink {
  Asked(TextSession& of, json name) : session(of), id(std::move(name)) {}
  void OnChunk(const json& chunk) override { session.WriteLine(id, chunk); }
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
    session.WriteLine(id, ErrorJson(status, message));
    session.Remove(this);
  }
  TextSession& session;
  const json id;
  std::unique_ptr<Completion> completion;
};

LineKind KindOfLine(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return LineKind::kBlank;
  return line[first] == '{' ? LineKind::kJson : LineKind::kPlain;
}

bool IsUtf8(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = byte(i);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xC2 ? 0
                          : lead < 0xE0 ? 2
                          : lead < 0xF0 ? 3
                          : lead < 0xF5 ? 4
                                        : 0;
    if (length == 0 || text.size() - i < length) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    }
    // No overlong forms, no surrogates, nothing beyond U+10FFFF.
    if ((lead == 0xE0 && byte(i + 1) < 0xA0) || (lead == 0xED && byte(i + 1) > 0x9F)) return false;
    if ((lead == 0xF0 && byte(i + 1) < 0x90) || (lead == 0xF4 && byte(i + 1) > 0x8F)) return false;
    i += length;
  }
  return true;
}

TextSession::TextSession(Wire& wire, ServerState& state, const TextLimits& limits)
    : wire_(wire), state_(state), limits_(limits) {}
TextSession::~TextSession() = default;

void TextSession::OnBytes(std::string_view bytes) {
  while (!bytes.empty() && !closed_ && !plain_) {
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > limits_.line_bytes) {
      FailPlain(fmt::format("the line is longer than {} bytes", limits_.line_bytes));
      return;
    }
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    OnLine(std::exchange(line_, {}));
  }
}

void TextSession::OnLine(std::string line) {
  if (line.ends_with('\r')) line.pop_back();
  switch (KindOfLine(line)) {
    case LineKind::kBlank:
      return;
    case LineKind::kJson:
      OnJson(line);
      return;
    case LineKind::kPlain:
      OnPlain(std::move(line));
      return;
  }
}

void TextSession::OnPlain(std::string prompt) {
  if (!asked_.empty()) return FailPlain("a plain prompt can't follow JSON requests that are being answered");
  try {
    if (state_.service == nullptr) throw Refused(503, "the model is loading; try again later");
    if (!key_shown_ && !state_.api_keys.empty())
      throw Refused(401, "this server wants an API key: send {{\"prompt\":\"...\",\"api_key\":\"...\"}}");
    if (!IsUtf8(prompt)) throw Refused(400, "the prompt is not UTF-8");
    const CompletionRequest request = PlainRequest(std::move(prompt), state_.defaults);
    std::vector<GenerationSpec> specs = MakeSpecs(request, state_.defaults);
    plain_ = std::make_unique<Plain>(*this);
    plain_->handle = state_.service->Start(std::move(specs[0]), Protocol::kText, plain_.get());
  } catch (const Error& error) {
    FailPlain(error.what());
  }
}

// An id as the client named it: a string or a number.
static json RequestId(const json& value) {
  constexpr size_t kMostBytes = 256;
  if (value.is_string() && value.get_ref<const std::string&>().size() <= kMostBytes) return value;
  if (value.is_number()) return value;
  throw Refused(400, "id is {}: expected a number or a string of at most {} bytes", Excerpt(value),
                kMostBytes)
      .On("id");
}

void TextSession::OnJson(const std::string& line) {
  json id;
  try {
    const json body = ParseJson(line);
    const JsonFields fields(body);
    CheckKey(body);
    if (const json* cancel = fields.Find("cancel")) {
      id = RequestId(*cancel);
      Cancel(id);
      return;
    }
    if (const json* own = fields.Find("id")) {
      id = RequestId(*own);
    } else {
      id = next_id_++;
    }
    Ask(body, id);
  } catch (const Refused& refused) {
    WriteLine(id, ErrorJson(refused.status(), refused.what(), refused.param()));
    if (refused.status() == 401) {
      closed_ = true;
      wire_.Close();
    }
  } catch (const Error& error) {
    WriteLine(id, ErrorJson(400, error.what()));
  }
}

void TextSession::CheckKey(const json& body) {
  if (key_shown_ || state_.api_keys.empty()) return;
  if (!state_.KeyIsGood(JsonFields(body).String("api_key", "")))
    throw Refused(401, "api_key is missing or wrong").On("api_key");
  key_shown_ = true;
}

void TextSession::Ask(const json& body, const json& id) {
  if (state_.service == nullptr) throw Refused(503, "the model is loading; try again later");
  if (asked_.size() >= limits_.requests)
    throw Refused(429, "{} requests of this connection are being answered: expected no more at once",
                  asked_.size());
  for (const auto& one : asked_) {
    if (one->id == id) throw Refused(400, "id {} is that of a request being answered", Excerpt(id)).On("id");
  }
  CompletionRequest request = ReadCompletionRequest(body, Dialect::kNative, state_.defaults);
  request.stream = JsonFields(body).Bool("stream", true);
  std::vector<GenerationSpec> specs = MakeSpecs(request, state_.defaults);
  auto asked = std::make_unique<Asked>(*this, id);
  asked->completion = std::make_unique<Completion>(*state_.service, request, std::move(specs),
                                                   state_.NewHead(Dialect::kNative), Protocol::kText, *asked);
  asked_.push_back(std::move(asked));
}

void TextSession::Cancel(const json& id) {
  const auto found =
      std::find_if(asked_.begin(), asked_.end(), [&](const auto& asked) { return asked->id == id; });
  // Its last line may be on the way: no error.
  if (found != asked_.end()) (*found)->completion->Cancel();
}

void TextSession::Remove(const Asked* asked) {
  std::erase_if(asked_, [&](const auto& one) { return one.get() == asked; });
  CloseIfDone();
}

void TextSession::CloseIfDone() {
  if (!end_of_input_ || !asked_.empty() || plain_ || closed_) return;
  closed_ = true;
  wire_.Close();
}

void TextSession::WriteLine(const json& id, json object) {
  object["id"] = id;
  wire_.Write(Dump(object) + "\n");
}

void TextSession::FailPlain(const std::string& why) {
  closed_ = true;
  wire_.Write("error: " + why + "\n");
  wire_.Close();
}

// Whoever sends with a tool that ends its side still wants the answer; a client that is gone shows when we
// write.
void TextSession::OnEndOfInput() {
  end_of_input_ = true;
  if (!line_.empty() && !plain_ && !closed_) OnLine(std::exchange(line_, {}));
  CloseIfDone();
}

Turn TextSession::turn() const {
  if (plain_ || !asked_.empty()) return Turn::kAnswering;
  return line_.empty() ? Turn::kIdle : Turn::kReceiving;
}

void TextSession::OnTimeout() {
  if (turn() == Turn::kReceiving) wire_.Write("error: the line took too long to come\n");
  closed_ = true;
}

}  // namespace larder::serving
