#include <algorithm>
#include <array>
#include <vector>

#include "serving/answer/call_machine.h"

namespace larder::serving::inline answer {

Verdict ArgumentsPipe::Next(char c, std::string* kept) {
  const bool in_string = scanner_.in_string();
  const Verdict verdict = scanner_.Next(c);
  if (verdict == Verdict::kBroken || verdict == Verdict::kDoneBefore) return verdict;
  std::string json;
  if (in_string && static_cast<unsigned char>(c) < 0x20) {
    AppendJsonEscaped(json, {&c, 1});
  } else {
    json = c;
  }
  if (kept != nullptr) {
    *kept += json;
  } else {
    sink_->Arguments(json);
  }
  return verdict;
}

namespace {

// An object in which a call or another such object may stand, or a list of these.
struct JsonFrame {
  bool list = false;
  bool named = false, argued = false, nested = false;
  std::string name;
  std::string kept;  // arguments that came before the name
};

class JsonCalls final : public CallMachine {
 public:
  JsonCalls(CallSink& sink, const ToolTable& tools, bool whole_message)
      : sink_(sink), tools_(tools), whole_message_(whole_message), pipe_(&sink) {}

  Verdict Next(char c) override {
    switch (state_) {
      case State::kKeyText:
        return KeyText(c);
      case State::kName:
        return Name(c);
      case State::kArguments:
        return Arguments(c);
      case State::kArgumentsText:
        return ArgumentsText(c);
      case State::kSkip:
        return Skip(c);
      default:
        return IsJsonSpace(c) ? Verdict::kMore : Between(c);
    }
  }

 private:
  enum class State : uint8_t {
    kItem,
    kFirstItem,
    kAfterItem,
    kKey,
    kFirstKey,
    kColon,
    kMember,
    kAfterMember,  // between tokens
    kKeyText,
    kName,
    kArguments,
    kArgumentsText,
    kSkip,
  };

  JsonFrame& frame() { return frames_.back(); }

  Verdict Go(State state) {
    state_ = state;
    return Verdict::kMore;
  }

  Verdict Open(char c) {
    if ((c != '{' && c != '[') || frames_.size() == 8) return Verdict::kBroken;
    if (!frames_.empty()) frame().nested = true;
    frames_.push_back({.list = c == '[', .name = {}, .kept = {}});
    return Go(c == '[' ? State::kFirstItem : State::kFirstKey);
  }

  Verdict Close() {
    const bool call = frame().named && (frame().argued || !whole_message_);
    if (!call && !frame().nested) return Verdict::kBroken;
    if (frame().named && !frame().argued) {  // a call without arguments
      sink_.Begin(frame().name, {});
      sink_.Arguments("{}");
      sink_.End();
    }
    frames_.pop_back();
    if (frames_.empty()) return Verdict::kDone;
    return Go(frame().list ? State::kAfterItem : State::kAfterMember);
  }

  Verdict Between(char c) {
    switch (state_) {
      case State::kFirstItem:
      case State::kItem:
        return Open(c);
      case State::kAfterItem:
        if (c == ',') return Go(State::kItem);
        return c == ']' ? Close() : Verdict::kBroken;
      case State::kFirstKey:
        if (c == '}') return Close();
        [[fallthrough]];
      case State::kKey:
        if (c != '"') return Verdict::kBroken;
        key_.clear();
        decoder_ = {};
        return Go(State::kKeyText);
      case State::kColon:
        return c == ':' ? Go(State::kMember) : Verdict::kBroken;
      case State::kAfterMember:
        if (c == ',') return Go(State::kKey);
        return c == '}' ? Close() : Verdict::kBroken;
      default:
        return Member(c);
    }
  }

  bool KeyIs(std::initializer_list<std::string_view> names) const {
    return std::ranges::find(names, key_) != names.end();
  }

  Verdict KeyText(char c) {
    const Verdict verdict = decoder_.Next(c, key_);
    // As soon as it can't be a call any more, the message is text.
    if (whole_message_ && std::ranges::none_of(MessageKeys(), [&](std::string_view key) {
          return verdict == Verdict::kDone ? key == key_ : key.starts_with(key_);
        }))
      return Verdict::kBroken;
    if (verdict != Verdict::kDone) return verdict;
    return Go(State::kColon);
  }

  Verdict Member(char c) {
    if (c == '"' && !frame().named && KeyIs({"name", "tool_name", "function"})) {
      decoder_ = {};
      return Go(State::kName);
    }
    if ((c == '{' || c == '[') && KeyIs({"tool_call", "tool_calls", "function"})) return Open(c);
    if (!frame().argued && KeyIs({"arguments", "parameters", "args"}) && (c == '{' || c == '"')) {
      pipe_ = ArgumentsPipe(&sink_);
      decoder_ = {};
      begun_ = false;
      if (c == '"') return Go(State::kArgumentsText);
      BeginArguments();
      state_ = State::kArguments;
      return Arguments(c);
    }
    skipped_ = {};
    state_ = State::kSkip;
    return Skip(c);
  }

  Verdict Name(char c) {
    const Verdict verdict = decoder_.Next(c, frame().name);
    const bool of_tool =
        !whole_message_ || tools_.empty() ||
        (verdict == Verdict::kDone ? tools_.Has(frame().name) : tools_.AnyBegins(frame().name));
    if (!of_tool) return Verdict::kBroken;
    if (verdict != Verdict::kDone) return verdict;
    if (frame().name.empty()) return Verdict::kBroken;
    frame().named = true;
    if (frame().argued) {
      sink_.Begin(frame().name, {});
      sink_.Arguments(frame().kept);
      sink_.End();
    }
    return Go(State::kAfterMember);
  }

  void BeginArguments() {
    if (!begun_ && frame().named) sink_.Begin(frame().name, {});
    begun_ = true;
  }

  Verdict Argued() {
    frame().argued = true;
    if (frame().named) sink_.End();
    return Go(State::kAfterMember);
  }

  Verdict Arguments(char c) {
    const Verdict verdict = pipe_.Next(c, frame().named ? nullptr : &frame().kept);
    return verdict == Verdict::kDone ? Argued() : verdict;
  }

  // Arguments as a string that holds JSON, as OpenAI's API has them.
  Verdict ArgumentsText(char c) {
    std::string text;
    const Verdict verdict = decoder_.Next(c, text);
    if (verdict == Verdict::kBroken) return verdict;
    if (!begun_ && whole_message_) {  // a message is a call only with an object
      if (verdict == Verdict::kDone || (!text.empty() && !IsJsonSpace(text[0]) && text[0] != '{'))
        return Verdict::kBroken;
      if (text.empty() || IsJsonSpace(text[0])) return Verdict::kMore;
    }
    BeginArguments();
    if (frame().named) {
      if (!text.empty()) sink_.Arguments(text);
    } else {
      frame().kept += text;
    }
    return verdict == Verdict::kDone ? Argued() : verdict;
  }

  Verdict Skip(char c) {
    const Verdict verdict = skipped_.Next(c);
    if (verdict == Verdict::kMore || verdict == Verdict::kBroken) return verdict;
    state_ = State::kAfterMember;
    return verdict == Verdict::kDone ? Verdict::kMore : Next(c);
  }

  CallSink& sink_;
  const ToolTable& tools_;
  bool whole_message_;
  State state_ = State::kItem;
  std::vector<JsonFrame> frames_;
  std::string key_;
  JsonStringDecoder decoder_;
  JsonScanner skipped_;
  ArgumentsPipe pipe_;
  bool begun_ = false;  // the arguments that are read
};

}  // namespace

std::span<const std::string_view> MessageKeys() {
  static constexpr std::array<std::string_view, 9> kKeys = {"name",      "arguments",  "parameters",
                                                            "tool_call", "tool_calls", "function",
                                                            "type",      "id",         "tool_name"};
  return kKeys;
}

std::unique_ptr<CallMachine> MakeJsonCalls(CallSink& sink, const ToolTable& tools) {
  return std::make_unique<JsonCalls>(sink, tools, false);
}

std::unique_ptr<CallMachine> MakeJsonMessage(CallSink& sink, const ToolTable& tools) {
  return std::make_unique<JsonCalls>(sink, tools, true);
}

}  // namespace larder::serving::answer
