#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "serving/answer/call_machine.h"
#include "serving/answer/json_scanner.h"

namespace larder::serving::inline answer {
namespace {

using Json = nlohmann::ordered_json;

bool IsIdentifierByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool IsPythonByte(char c) { return IsIdentifierByte(c) || c == '.' || c == '-'; }

// Reads literals and calls from a whole text. Each reader leaves `failed` set where the text is not
// what it should be.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  bool failed() const { return failed_; }
  bool AtEnd() {
    Space();
    return text_.empty();
  }

  bool Take(std::string_view token) {
    Space();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  std::string Identifier(bool dotted) {
    Space();
    size_t end = 0;
    while (end < text_.size() && (dotted ? IsPythonByte(text_[end]) : IsIdentifierByte(text_[end])))
      ++end;
    std::string name(text_.substr(0, end));
    text_.remove_prefix(end);
    if (name.empty()) failed_ = true;
    return name;
  }

  Json Literal(int depth = 0) {
    Space();
    if (text_.empty() || depth > 64) return Fail();
    const char c = text_.front();
    if (c == '"' || c == '\'') return String();
    if (c == '[' || c == '(') return List(c == '[' ? "]" : ")", depth);
    if (c == '{') return Dict(depth);
    if (IsIdentifierByte(c) && (c < '0' || c > '9')) return Word();
    return Number();
  }

 private:
  Json Fail() {
    failed_ = true;
    return nullptr;
  }

  void Space() {
    while (!text_.empty() && IsJsonSpace(text_.front())) text_.remove_prefix(1);
  }

  Json String() {
    const char quote = text_.front();
    text_.remove_prefix(1);
    std::string value;
    EscapedUnits units;
    while (!text_.empty() && text_.front() != quote) {
      char c = text_.front();
      text_.remove_prefix(1);
      const bool escaped = c == '\\' && !text_.empty();
      if (escaped) {
        c = text_.front();
        text_.remove_prefix(1);
        if (const auto unit = c == 'u' ? TakeUnit() : std::nullopt) {
          units.Add(*unit, value);
          continue;
        }
      }
      units.End(value);
      if (escaped) {
        constexpr std::string_view kNames = "ntrbf0";
        const size_t at = kNames.find(c);
        if (at != std::string_view::npos) {
          value += std::string_view("\n\t\r\b\f\0", 6)[at];
          continue;
        }
        if (c != '\\' && c != '\'' && c != '"' && c != '\n' && c != '/') value += '\\';
      }
      value += c;
    }
    units.End(value);
    if (text_.empty()) return Fail();
    text_.remove_prefix(1);
    return value;
  }

  // The four hexadecimal digits behind \u, if they are there.
  std::optional<uint32_t> TakeUnit() {
    uint32_t unit = 0;
    const std::string_view digits = text_.substr(0, 4);
    const char* end = digits.data() + digits.size();
    if (digits.size() < 4 || std::from_chars(digits.data(), end, unit, 16).ptr != end)
      return std::nullopt;
    text_.remove_prefix(4);
    return unit;
  }

  Json List(std::string_view close, int depth) {
    text_.remove_prefix(1);
    Json list = Json::array();
    while (!failed_ && !Take(close)) {
      list.push_back(Literal(depth + 1));
      if (Take(",")) continue;
      if (!Take(close)) return Fail();
      break;
    }
    return list;
  }

  Json Dict(int depth) {
    text_.remove_prefix(1);
    Json dict = Json::object();
    while (!failed_ && !Take("}")) {
      const Json key = Literal(depth + 1);
      if (failed_ || !Take(":")) return Fail();
      dict[key.is_string() ? key.get<std::string>() : key.dump()] = Literal(depth + 1);
      if (Take(",")) continue;
      if (!Take("}")) return Fail();
      break;
    }
    return dict;
  }

  Json Word() {
    const std::string word = Identifier(false);
    if (word == "True" || word == "true") return true;
    if (word == "False" || word == "false") return false;
    if (word == "None" || word == "null") return nullptr;
    return Fail();
  }

  Json Number() {
    size_t end = 0;
    while (end < text_.size() &&
           std::string_view("+-.0123456789eE").find(text_[end]) != std::string_view::npos)
      ++end;
    auto number = TryParseJsonText<Json>(text_.substr(0, end));
    if (!number || !number->is_number()) return Fail();
    text_.remove_prefix(end);
    return std::move(*number);
  }

  std::string_view text_;
  bool failed_ = false;
};

struct PythonCall {
  std::string name;
  Json arguments = Json::object();
};

// f(a=1)
std::optional<PythonCall> ReadPythonCall(std::string_view text) {
  PythonReader reader(text);
  PythonCall call{.name = reader.Identifier(true), .arguments = Json::object()};
  if (call.name.ends_with(".call")) call.name.resize(call.name.size() - 5);
  if (!reader.Take("(")) return std::nullopt;
  while (!reader.failed() && !reader.Take(")")) {
    std::string key = reader.Identifier(true);
    if (!reader.Take("=")) return std::nullopt;
    call.arguments[std::move(key)] = reader.Literal();
    if (reader.Take(",")) continue;
    if (!reader.Take(")")) return std::nullopt;
    break;
  }
  if (reader.failed() || call.name.empty() || !reader.AtEnd()) return std::nullopt;
  return call;
}

// A call, or a list of calls, of which some may be JSON: what GrammarText::PythonCall permits. A
// call in Python is read when its parentheses are closed: its arguments come in one piece.
class PythonCalls final : public CallMachine {
 public:
  PythonCalls(CallSink& sink, const ToolTable& tools) : sink_(sink), tools_(tools) {}

  Verdict Next(char c) override {
    if (json_) return End(json_->Next(c));
    return text_.empty() ? Between(c) : InCall(c);
  }

 private:
  Verdict Between(char c) {
    if (IsJsonSpace(c)) return Verdict::kMore;
    if (after_) {
      if (c == ']') return Verdict::kDone;
      after_ = false;
      return c == ',' ? Verdict::kMore : Verdict::kBroken;
    }
    if (c == '[' && !list_) {
      list_ = true;
      return Verdict::kMore;
    }
    if (c == '{') {
      json_ = MakeJsonCalls(sink_, tools_);
      return End(json_->Next(c));
    }
    if (!IsPythonByte(c)) return Verdict::kBroken;
    text_ = c;
    return Verdict::kMore;
  }

  Verdict InCall(char c) {
    text_ += c;
    if (quote_ != 0) {
      if (escaped_ || c == '\\') {
        escaped_ = !escaped_;
      } else if (c == quote_) {
        quote_ = 0;
      }
      return Verdict::kMore;
    }
    if (depth_ == 0 && !IsPythonByte(c) && c != '(' && c != ' ') return Verdict::kBroken;
    if (c == '\'' || c == '"') quote_ = c;
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if (c != ')' && c != ']' && c != '}') return Verdict::kMore;
    if (--depth_ > 0) return Verdict::kMore;
    const std::optional<PythonCall> call = ReadPythonCall(std::exchange(text_, {}));
    if (!call) return Verdict::kBroken;
    sink_.Begin(call->name, {});
    sink_.Arguments(call->arguments.dump(-1, ' ', false, Json::error_handler_t::replace));
    sink_.End();
    return End(Verdict::kDone);
  }

  // Of a call.
  Verdict End(Verdict verdict) {
    if (verdict != Verdict::kDone || !list_) return verdict;
    json_.reset();
    after_ = true;
    return Verdict::kMore;
  }

  CallSink& sink_;
  const ToolTable& tools_;
  bool list_ = false, after_ = false;  // in a list; behind a call in it
  std::string text_;                   // of a call in Python
  char quote_ = 0;
  bool escaped_ = false;
  int depth_ = 0;
  std::unique_ptr<CallMachine> json_;
};

// Each call is read when its parentheses are closed.
class PythonLines final : public CallMachine {
 public:
  PythonLines(CallSink& sink, const ToolTable& tools, std::string_view end)
      : sink_(sink), tools_(tools), end_(end) {}

  Verdict Next(char c) override {
    if (call_) {
      const Verdict verdict = call_->Next(c);
      if (verdict == Verdict::kDone) call_.reset();
      return verdict == Verdict::kDone ? Verdict::kMore : verdict;
    }
    if (read_.empty() && (IsJsonSpace(c) || c == ',')) return Verdict::kMore;
    read_ += c;
    if (read_ == end_) return Verdict::kDone;
    if (end_.starts_with(read_)) return Verdict::kMore;
    if (read_.size() > 1) return Verdict::kBroken;
    read_.clear();
    call_ = std::make_unique<PythonCalls>(sink_, tools_);
    return call_->Next(c);
  }

 private:
  CallSink& sink_;
  const ToolTable& tools_;
  const std::string_view end_;
  std::string read_;  // of the end
  std::unique_ptr<CallMachine> call_;
};

}  // namespace

bool IsPythonName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, IsPythonByte) && !name.ends_with(".call");
}

Json ParsePythonLiteral(std::string_view text) {
  PythonReader reader(text);
  Json value = reader.Literal();
  if (reader.failed() || !reader.AtEnd()) return Json(Json::value_t::discarded);
  return value;
}

std::unique_ptr<CallMachine> MakePythonCalls(CallSink& sink, const ToolTable& tools) {
  return std::make_unique<PythonCalls>(sink, tools);
}

std::unique_ptr<CallMachine> MakePythonLines(CallSink& sink, const ToolTable& tools,
                                             std::string_view end) {
  return std::make_unique<PythonLines>(sink, tools, end);
}

}  // namespace larder::serving::answer
