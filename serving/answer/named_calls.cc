#include <optional>

#include "serving/answer/call_machine.h"

namespace larder::serving::inline answer {
namespace {

std::string_view Stripped(std::string_view text) {
  while (!text.empty() && IsJsonSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsJsonSpace(text.back())) text.remove_suffix(1);
  return text;
}

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

// The text between two markers; nothing if one of them is missing.
std::optional<std::string_view> BetweenMarkers(std::string_view text, std::string_view from,
                                               std::string_view to) {
  const size_t begin = text.find(from);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + from.size());
  const size_t end = text.find(to);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(0, end);
}

struct CallHead {
  std::string_view name;
  std::string_view id;
};

std::optional<CallHead> ReadDeepSeekHead(std::string_view head) {
  size_t separator_bytes = 0;
  size_t at = std::string_view::npos;
  for (const std::string_view separator : {"<｜tool▁sep｜>", "<｜tool_sep｜>"}) {
    if (at != std::string_view::npos) break;
    at = head.find(separator);
    separator_bytes = separator.size();
  }
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view behind = head.substr(at + separator_bytes);
  const size_t line = behind.find('\n');
  const std::string_view first = Stripped(behind.substr(0, line));
  const bool named_behind =
      line != std::string_view::npos && !first.empty() && !first.starts_with("```");
  return CallHead{named_behind ? first : Stripped(head.substr(0, at)), {}};
}

std::optional<CallHead> ReadHead(NamedForm form, std::string_view head) {
  switch (form) {
    case NamedForm::kMistral: {
      CallHead read{head.substr(0, head.find('[')), {}};
      read.id = BetweenMarkers(head, "[CALL_ID]", "[ARGS]").value_or("");
      return read;
    }
    case NamedForm::kDeepSeek:
      return ReadDeepSeekHead(head);
    case NamedForm::kKimi: {
      const size_t end = head.find("<|tool_call_argument_begin|>");
      if (end == std::string_view::npos) return std::nullopt;
      CallHead read{{}, Stripped(head.substr(0, end))};
      read.name = read.id.substr(0, read.id.rfind(':'));
      if (read.name.starts_with("functions.")) read.name.remove_prefix(10);
      return read;
    }
    case NamedForm::kFunctionary31:
      if (!Stripped(head).ends_with('>')) return std::nullopt;
      return CallHead{head.substr(0, head.find('>')), {}};
    case NamedForm::kFunctionary32:
      if (head.find('\n') == std::string_view::npos) return std::nullopt;
      return CallHead{head.substr(0, head.find('\n')), {}};
    case NamedForm::kMiro: {
      const auto name = BetweenMarkers(head, "<tool_name>", "</tool_name>");
      if (!name || head.find("<arguments>") == std::string_view::npos) return std::nullopt;
      return CallHead{*name, {}};
    }
  }
  return std::nullopt;
}

class NamedCall final : public CallMachine {
 public:
  NamedCall(CallSink& sink, const ToolTable& tools, NamedForm form)
      : sink_(sink), tools_(tools), form_(form), pipe_(&sink) {}

  Step Next(char c) override {
    if (json_) return json_->Next(c);
    if (begun_) return Arguments(c);
    const bool json =
        form_ == NamedForm::kMistral && Stripped(head_).empty() && (c == '[' || c == '{');
    if (json) {
      json_ = MakeJsonCalls(sink_, tools_, false);
      return json_->Next(c);
    }
    if (c != '{') {
      head_ += c;
      return MayBeHead() ? Step::kMore : Step::kBroken;
    }
    const auto head = ReadHead(form_, head_);
    if (!head || Stripped(head->name).empty()) return Step::kBroken;
    begun_ = true;
    sink_.Begin(Stripped(head->name), Stripped(head->id));
    return Arguments(c);
  }

 private:
  bool MayBeHead() const {
    if (head_.size() > 512) return false;
    if (form_ != NamedForm::kFunctionary31 && form_ != NamedForm::kFunctionary32) return true;
    // These open with what a text may hold as well.
    const char end = form_ == NamedForm::kFunctionary31 ? '>' : '\n';
    size_t name = 0;
    while (name < head_.size() && IsNameByte(head_[name])) ++name;
    if (name == head_.size()) return true;
    if (name == 0 || head_[name] != end || std::string_view(head_).substr(0, name) == "all")
      return false;
    return Stripped(std::string_view(head_).substr(name + 1)).empty();
  }

  Step Arguments(char c) {
    const Step step = pipe_.Next(c);
    if (step == Step::kDone) sink_.End();
    return step;
  }

  CallSink& sink_;
  const ToolTable& tools_;
  NamedForm form_;
  std::string head_;
  bool begun_ = false;
  ArgumentsPipe pipe_;
  std::unique_ptr<CallMachine> json_;
};

}  // namespace

std::unique_ptr<CallMachine> MakeNamedCall(CallSink& sink, const ToolTable& tools, NamedForm form) {
  return std::make_unique<NamedCall>(sink, tools, form);
}

}  // namespace larder::serving::answer
