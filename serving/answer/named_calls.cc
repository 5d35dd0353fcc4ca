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

  Verdict Next(char c) override {
    if (json_) return json_->Next(c);
    if (begun_) return Arguments(c);
    if (form_.or_json && StripJsonSpace(opening_).empty() && (c == '[' || c == '{')) {
      json_ = MakeJsonCalls(sink_, tools_);
      return json_->Next(c);
    }
    if (c != '{') {
      opening_ += c;
      return MayBeOpening() ? Verdict::kMore : Verdict::kBroken;
    }
    const auto name = form_.read(opening_);
    if (!name || StripJsonSpace(name->name).empty()) return Verdict::kBroken;
    begun_ = true;
    sink_.Begin(StripJsonSpace(name->name), StripJsonSpace(name->id));
    return Arguments(c);
  }

 private:
  bool MayBeOpening() const {
    if (opening_.size() > 512) return false;
    if (form_.name_end == 0) return true;
    size_t name = 0;
    while (name < opening_.size() && IsNameByte(opening_[name])) ++name;
    if (name == opening_.size()) return true;
    if (name == 0 || opening_[name] != form_.name_end ||
        std::string_view(opening_).substr(0, name) == "all")
      return false;
    return StripJsonSpace(std::string_view(opening_).substr(name + 1)).empty();
  }

  Verdict Arguments(char c) {
    const Verdict verdict = pipe_.Next(c);
    if (verdict == Verdict::kDone) sink_.End();
    return verdict;
  }

  CallSink& sink_;
  const ToolTable& tools_;
  NamedForm form_;
  std::string opening_;
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
