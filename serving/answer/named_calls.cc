#include "serving/answer/call_machine.h"

namespace larder::serving::inline answer {
namespace {

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

class NamedCall final : public CallMachine {
 public:
  NamedCall(CallSink& sink, const ToolTable& tools, const NamedForm& form)
      : sink_(sink), tools_(tools), form_(form), pipe_(&sink) {}

  Step Next(char c) override {
    if (json_) return json_->Next(c);
    if (begun_) return Arguments(c);
    if (form_.or_json && StripJsonSpace(head_).empty() && (c == '[' || c == '{')) {
      json_ = MakeJsonCalls(sink_, tools_);
      return json_->Next(c);
    }
    if (c != '{') {
      head_ += c;
      return MayBeHead() ? Step::kMore : Step::kBroken;
    }
    const auto head = form_.read(head_);
    if (!head || StripJsonSpace(head->name).empty()) return Step::kBroken;
    begun_ = true;
    sink_.Begin(StripJsonSpace(head->name), StripJsonSpace(head->id));
    return Arguments(c);
  }

 private:
  bool MayBeHead() const {
    if (head_.size() > 512) return false;
    if (form_.name_end == 0) return true;
    size_t name = 0;
    while (name < head_.size() && IsNameByte(head_[name])) ++name;
    if (name == head_.size()) return true;
    if (name == 0 || head_[name] != form_.name_end ||
        std::string_view(head_).substr(0, name) == "all")
      return false;
    return StripJsonSpace(std::string_view(head_).substr(name + 1)).empty();
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

std::unique_ptr<CallMachine> MakeNamedCall(CallSink& sink, const ToolTable& tools,
                                           const NamedForm& form) {
  return std::make_unique<NamedCall>(sink, tools, form);
}

std::optional<std::string_view> TextBetween(std::string_view text, std::string_view from,
                                            std::string_view to) {
  const size_t begin = text.find(from);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + from.size());
  const size_t end = text.find(to);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(0, end);
}

}  // namespace larder::serving::answer
