// gpt-oss. A text is a sequence of messages, each behind a header that names channel and recipient:
// <|channel|>commentary to=functions.name<|message|>{...}<|call|>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

// Headers and messages stand between these.
constexpr std::array<std::string_view, 7> kHarmonyTokens = {
    "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>",
    "<|end|>",   "<|return|>",  "<|call|>"};

std::string_view WordBehind(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + key.size());
  return header.substr(0, header.find_first_of(" \t\r\n<"));
}

// The prompt ends with <|start|>assistant, so the text begins inside a header.
class Harmony final : public AnswerParser::Machine {
 public:
  explicit Harmony(const AnswerParserOptions& options)
      : Machine(options),
        parse_tools_(options.parse_tools),
        parse_reasoning_(options.parse_reasoning) {
    if (options.starts_in_reasoning) part_ = Part::kThought;
  }

  void Add(std::string_view text) override {
    for (const char c : text) Byte(c);
  }

  void Finish() override {
    for (const char c : std::exchange(pending_, {})) Plain(c);
    // A header without its end is a marker that was cut off.
    if (part_ == Part::kCall && sink_.open()) sink_.End();
  }

 private:
  enum class Part : uint8_t { kHeader, kContent, kThought, kCall };

  void Byte(char c) {
    pending_ += c;
    while (!pending_.empty()) {
      bool may_be = false;
      for (const std::string_view token : kHarmonyTokens) {
        if (token == pending_) {
          pending_.clear();
          return Token(token);
        }
        may_be = may_be || token.starts_with(pending_);
      }
      if (may_be) return;
      const char first = pending_.front();
      pending_.erase(0, 1);
      Plain(first);
    }
  }

  void Token(std::string_view token) {
    if (part_ == Part::kHeader && token == "<|message|>") return BeginPart();
    if (token == "<|start|>" || token == "<|channel|>") {
      if (part_ != Part::kHeader) EndPart();
      header_ += token;
    } else if (token == "<|constrain|>") {
      if (part_ == Part::kHeader) header_ += token;
    } else if (token != "<|message|>") {
      EndPart();
    }
  }

  void BeginPart() {
    std::string_view recipient = WordBehind(header_, "to=");
    const std::string_view channel = WordBehind(header_, "<|channel|>");
    if (recipient.starts_with("functions.")) recipient.remove_prefix(10);
    name_ = recipient;
    if (!name_.empty() && parse_tools_) {
      part_ = Part::kCall;
    } else if (channel == "analysis" && parse_reasoning_) {
      part_ = Part::kThought;
    } else {
      part_ = Part::kContent;
      separate_ = content_;
    }
    begun_ = false;
    header_.clear();
  }

  void EndPart() {
    if (part_ == Part::kCall) {
      if (!begun_) sink_.Begin(name_, {});
      if (!begun_) sink_.Arguments("{}");
      sink_.End();
    }
    part_ = Part::kHeader;
    space_.clear();
    header_.clear();
  }

  void Plain(char c) {
    switch (part_) {
      case Part::kHeader:
        return HeaderByte(c);
      case Part::kContent:
        return Content({&c, 1});
      case Part::kThought:
        if (IsJsonSpace(c)) {
          space_ += c;
          return;
        }
        if (begun_) sink_.Reasoning(space_);
        break;
      case Part::kCall:
        if (!begun_ && IsJsonSpace(c)) return;
        if (!begun_) sink_.Begin(name_, {});
        begun_ = true;
        return sink_.Arguments({&c, 1});
    }
    begun_ = true;
    space_.clear();
    sink_.Reasoning({&c, 1});
  }

  // Text that is no header is content: a model that was tuned away from the format.
  void HeaderByte(char c) {
    header_ += c;
    constexpr std::string_view kRecipient = " to=";
    const bool may_be = header_.starts_with("<|") || header_.starts_with(kRecipient) ||
                        kRecipient.starts_with(header_);
    if (may_be && header_.size() < 512) return;
    part_ = Part::kContent;
    Content(std::exchange(header_, {}));
  }

  // A preamble and the final answer are two messages, and one text with a blank line between.
  void Content(std::string_view text) {
    if (separate_) sink_.Content("\n\n");
    separate_ = false;
    content_ = true;
    sink_.Content(text);
  }

  bool parse_tools_, parse_reasoning_;
  Part part_ = Part::kHeader;
  std::string pending_;  // may become a token
  std::string header_;
  std::string name_;
  std::string space_;
  bool begun_ = false;  // the part has text
  bool content_ = false;
  bool separate_ = false;
};

}  // namespace

FormatEntry HarmonyFormat() {
  using enum Marker::Action;
  return {
      .name = "openai",
      .templates = {{"<|channel|>", "<|message|>"}},
      .thoughts = {{"<|channel|>analysis<|message|>", kThink}, {"<|end|>", kThinkEnd}},
      .shown = {kHarmonyTokens.begin(), kHarmonyTokens.end()},
      .reader = [](const AnswerParserOptions& options) -> std::unique_ptr<AnswerParser::Machine> {
        return std::make_unique<Harmony>(options);
      },
      .shape = {.open = {" to=functions."}, .before = R"(%token "<|channel|>" "commentary" )"},
      .thought = {.open = {"<|channel|>", "analysis", "<|message|>"},
                  .end = "<|end|>",
                  .behind = {"<|start|>", "assistant"},
                  .messages = true},
      .call =
          [](GrammarText&, const Tool& tool, const std::string&) {
            return GbnfLiteral(tool.name) +
                   R"( (%token "<|channel|>" "commentary")? (" " (%token "<|constrain|>")? "json")? )"
                   R"(%token "<|message|>" )" +
                   GbnfJson(tool.schema);
          },
      .answer_open =
          R"(%token "<|channel|>" "final" (" " (%token "<|constrain|>")? ("json" | "JSON"))? )"
          R"(%token "<|message|>" )",
      .efforts = {{"none", "low"}, {"minimal", "low"}, {"xhigh", "high"}, {"max", "high"}},
  };
}

}  // namespace larder::serving::answer
