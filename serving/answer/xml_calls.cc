#include "serving/answer/call_machine.h"

namespace larder::serving::inline answer {
namespace {

class XmlCall final : public CallMachine {
 public:
  XmlCall(CallSink& sink, const ToolTable& tools, const XmlForm& form)
      : sink_(sink), tools_(tools), form_(form) {
    if (form_.name_open.empty()) state_ = State::kName;
  }

  Verdict Next(char c) override {
    switch (state_) {
      case State::kNameOpen:
        return Literal(c, form_.name_open, State::kName);
      case State::kName:
        return form_.name_end.empty() ? BareName(c) : Name(c);
      case State::kKeyOrEnd:
        return KeyOrEnd(c);
      case State::kKey:
        return Key(c);
      case State::kValueOpen:
        return form_.typed ? Attribute(c) : ValueOpen(c);
      case State::kString:
        return String(c);
      case State::kValue:
        return Value(c);
    }
    return Verdict::kBroken;
  }

  void Flush() override {
    if (state_ == State::kValue && form_.lines && token_.starts_with('\n')) token_.erase(0, 1);
    if (state_ == State::kValue && !token_.empty()) sink_.Arguments("\"");
    if (state_ == State::kValue || state_ == State::kString) Send(token_.size());
  }

 private:
  enum class State : uint8_t { kNameOpen, kName, kKeyOrEnd, kKey, kValueOpen, kString, kValue };
  static constexpr size_t kMostNameBytes = 512;

  Verdict Go(State state) {
    state_ = state;
    token_.clear();
    return Verdict::kMore;
  }

  Verdict Literal(char c, std::string_view literal, State then) {
    if (token_.empty() && IsJsonSpace(c)) return Verdict::kMore;
    token_ += c;
    if (!literal.starts_with(token_)) return Verdict::kBroken;
    return token_ == literal ? Go(then) : Verdict::kMore;
  }

  Verdict Name(char c) {
    name_ += c;
    if (name_.ends_with(form_.name_end)) {
      name_.resize(name_.size() - form_.name_end.size());
      return name_.empty() ? Verdict::kBroken : Go(State::kKeyOrEnd);
    }
    return c == '\n' || c == '<' || name_.size() > kMostNameBytes ? Verdict::kBroken
                                                                  : Verdict::kMore;
  }

  // Ends where the line or the first tag does.
  Verdict BareName(char c) {
    if (name_.empty() && IsJsonSpace(c)) return Verdict::kMore;
    if (c == '\n' || c == '<') {
      if (name_.empty()) return Verdict::kBroken;
      Go(State::kKeyOrEnd);
      return KeyOrEnd(c);
    }
    if (c == ' ' || c == '{' || c == '>' || name_.size() > kMostNameBytes) return Verdict::kBroken;
    name_ += c;
    return Verdict::kMore;
  }

  void BeginOnce() {
    if (begun_) return;
    begun_ = true;
    sink_.Begin(name_, {});
    sink_.Arguments("{");
  }

  Verdict KeyOrEnd(char c) {
    if (token_.empty() && IsJsonSpace(c)) return Verdict::kMore;
    token_ += c;
    if (token_ == form_.key_open) {
      BeginOnce();
      key_.clear();
      return Go(State::kKey);
    }
    if (token_ == form_.call_end) {
      BeginOnce();
      sink_.Arguments("}");
      sink_.End();
      return Verdict::kDone;
    }
    const bool may_be = form_.key_open.starts_with(token_) || form_.call_end.starts_with(token_);
    return may_be ? Verdict::kMore : Verdict::kBroken;
  }

  Verdict Key(char c) {
    key_ += c;
    if (!key_.ends_with(form_.key_end))
      return key_.size() > kMostNameBytes ? Verdict::kBroken : Verdict::kMore;
    key_.resize(key_.size() - form_.key_end.size());
    std::string json = first_ ? "\"" : ", \"";
    first_ = false;
    AppendJsonEscaped(json, key_);
    json += "\": ";
    sink_.Arguments(json);
    Go(State::kValueOpen);
    if (!form_.typed && form_.value_open.empty()) {
      BeginValue(tools_.IsString(name_, key_));
    }
    return Verdict::kMore;
  }

  Verdict ValueOpen(char c) {
    const Verdict verdict = Literal(c, form_.value_open, State::kValue);
    if (state_ == State::kValue) BeginValue(tools_.IsString(name_, key_));
    return verdict;
  }

  Verdict Attribute(char c) {  // string="true">
    token_ += c;
    if (c != '>') return token_.size() > kMostNameBytes ? Verdict::kBroken : Verdict::kMore;
    BeginValue(token_.find("\"true\"") != std::string::npos);
    return Verdict::kMore;
  }

  void BeginValue(bool is_string) {
    Go(is_string ? State::kString : State::kValue);
    at_start_ = true;
    if (is_string) sink_.Arguments("\"");
  }

  // Streams a string's value, holding back what may be its end.
  Verdict String(char c) {
    const bool skipped = at_start_ && form_.lines && c == '\n';
    at_start_ = false;
    if (skipped) return Verdict::kMore;
    token_ += c;
    size_t sent = 0;
    while (sent < token_.size()) {
      std::string_view tail = std::string_view(token_).substr(sent);
      if (form_.lines && tail.starts_with('\n')) tail.remove_prefix(1);
      if (tail == form_.value_end) {
        Send(sent);
        sink_.Arguments("\"");
        return Go(State::kKeyOrEnd);
      }
      if (form_.value_end.starts_with(tail)) break;
      ++sent;
    }
    Send(sent);
    token_.erase(0, sent);
    return Verdict::kMore;
  }

  void Send(size_t bytes) {
    std::string json;
    AppendJsonEscaped(json, std::string_view(token_).substr(0, bytes));
    if (!json.empty()) sink_.Arguments(json);
  }

  Verdict Value(char c) {
    token_ += c;
    if (!token_.ends_with(form_.value_end)) return Verdict::kMore;
    std::string_view value(token_);
    value.remove_suffix(form_.value_end.size());
    if (form_.lines && value.starts_with('\n')) value.remove_prefix(1);
    if (form_.lines && value.ends_with('\n')) value.remove_suffix(1);
    sink_.Arguments(tools_.ToJson(name_, key_, value));
    return Go(State::kKeyOrEnd);
  }

  CallSink& sink_;
  const ToolTable& tools_;
  XmlForm form_;
  State state_ = State::kNameOpen;
  std::string name_, key_;
  std::string token_;  // what may become a marker; a value that is not streamed
  bool begun_ = false;
  bool first_ = true;
  bool at_start_ = false;
};

}  // namespace

std::unique_ptr<CallMachine> MakeXmlCall(CallSink& sink, const ToolTable& tools,
                                         const XmlForm& form) {
  return std::make_unique<XmlCall>(sink, tools, form);
}

}  // namespace larder::serving::answer
