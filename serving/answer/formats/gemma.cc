// Gemma 4: <|tool_call>call:name{k:<|"|>v<|"|>}<tool_call|>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kGemmaQuote = "<|\"|>";

// Writes {k:<|"|>v<|"|>,n:1} as JSON while it comes.
class GemmaCall final : public CallMachine {
 public:
  explicit GemmaCall(CallSink& sink) : sink_(sink) {}

  Verdict Next(char c) override {
    switch (state_) {
      case State::kName:
        return Name(c);
      case State::kKey:
        return Key(c);
      case State::kBareKey:
        return BareKey(c);
      case State::kColon:
        if (IsJsonSpace(c)) return Verdict::kMore;
        if (c != ':') return Verdict::kBroken;
        return Emit(":", State::kValue);
      case State::kFirstValue:
        if (c == ']') return Close(c);
        [[fallthrough]];
      case State::kValue:
        return Value(c);
      case State::kQuoteOpen:
        return QuoteOpen(c);
      case State::kBareValue:
        return BareValue(c);
      case State::kQuoted:
        return Quoted(c);
      case State::kJsonString:
        return JsonString(c);
      case State::kAfter:
        return After(c);
    }
    return Verdict::kBroken;
  }

  void Flush() override {
    std::string json;
    AppendJsonEscaped(json, token_);
    if (state_ == State::kBareValue || state_ == State::kQuoted) sink_.Arguments(json);
  }

 private:
  enum class State : uint8_t {
    kName,
    kKey,
    kBareKey,
    kColon,
    kFirstValue,
    kValue,
    kQuoteOpen,
    kBareValue,
    kQuoted,
    kJsonString,
    kAfter,
  };

  Verdict Go(State state) {
    state_ = state;
    token_.clear();
    return Verdict::kMore;
  }

  Verdict Emit(std::string_view json, State state) {
    sink_.Arguments(json);
    return Go(state);
  }

  Verdict Name(char c) {
    constexpr std::string_view kOpen = "call:";
    if (c != '{') {
      token_ += c;
      const bool may_be =
          kOpen.starts_with(std::string_view(token_).substr(0, kOpen.size())) && c != '<';
      return may_be && token_.size() < 256 ? Verdict::kMore : Verdict::kBroken;
    }
    if (token_.size() <= kOpen.size()) return Verdict::kBroken;
    sink_.Begin(std::string_view(token_).substr(kOpen.size()), {});
    return Open(c);
  }

  Verdict Open(char c) {
    if (open_.size() == JsonScanner::kMostDepth) return Verdict::kBroken;
    open_ += c;
    return Emit({&c, 1}, c == '{' ? State::kKey : State::kFirstValue);
  }

  Verdict Close(char c) {
    if (open_.back() != (c == '}' ? '{' : '[')) return Verdict::kBroken;
    open_.pop_back();
    Emit({&c, 1}, State::kAfter);
    if (!open_.empty()) return Verdict::kMore;
    sink_.End();
    return Verdict::kDone;
  }

  Verdict Key(char c) {
    if (IsJsonSpace(c)) return Verdict::kMore;
    if (c == '}') return Close(c);
    is_key_ = true;
    if (c == '"') return Emit("\"", State::kJsonString);
    Go(c == '<' ? State::kQuoteOpen : State::kBareKey);
    token_ += c;
    return Verdict::kMore;
  }

  Verdict BareKey(char c) {
    if (c != ':') {
      token_ += c;
      return token_.size() < 512 && c != '}' && c != ',' ? Verdict::kMore : Verdict::kBroken;
    }
    EmitString();
    return Emit(":", State::kValue);
  }

  void EmitString() {
    std::string json = "\"";
    AppendJsonEscaped(json, token_);
    json += '"';
    sink_.Arguments(json);
  }

  Verdict Value(char c) {
    if (IsJsonSpace(c)) return Verdict::kMore;
    is_key_ = false;
    if (c == '{' || c == '[') return Open(c);
    if (c == '"') return Emit("\"", State::kJsonString);
    if (c == ',' || c == '}' || c == ']') return Verdict::kBroken;
    Go(c == '<' ? State::kQuoteOpen : State::kBareValue);
    token_ += c;
    return Verdict::kMore;
  }

  Verdict QuoteOpen(char c) {
    token_ += c;
    if (token_ == kGemmaQuote) return Emit("\"", State::kQuoted);
    if (kGemmaQuote.starts_with(token_)) return Verdict::kMore;
    token_.pop_back();
    state_ = is_key_ ? State::kBareKey : State::kBareValue;
    return Next(c);
  }

  Verdict BareValue(char c) {
    if (c != ',' && c != '}' && c != ']') {
      token_ += c;
      return Verdict::kMore;
    }
    while (IsJsonSpace(token_.back())) token_.pop_back();
    if (TryParseJsonText<nlohmann::json>(token_)) {
      sink_.Arguments(token_);
    } else {
      EmitString();
    }
    Go(State::kAfter);
    return After(c);
  }

  Verdict Quoted(char c) {
    token_ += c;
    if (token_ == kGemmaQuote) return Emit("\"", is_key_ ? State::kColon : State::kAfter);
    size_t sent = 0;
    while (!kGemmaQuote.starts_with(std::string_view(token_).substr(sent))) ++sent;
    std::string json;
    AppendJsonEscaped(json, std::string_view(token_).substr(0, sent));
    if (sent > 0) sink_.Arguments(json);
    token_.erase(0, sent);
    return Verdict::kMore;
  }

  Verdict JsonString(char c) {
    std::string json;
    const bool escape = !token_.empty();  // behind a backslash
    if (!escape && c == '"') return Emit("\"", is_key_ ? State::kColon : State::kAfter);
    token_ = !escape && c == '\\' ? "\\" : "";
    if (static_cast<unsigned char>(c) < 0x20) {
      AppendJsonEscaped(json, {&c, 1});
    } else {
      json = c;
    }
    sink_.Arguments(json);
    return Verdict::kMore;
  }

  Verdict After(char c) {
    if (IsJsonSpace(c)) return Verdict::kMore;
    if (c == '}' || c == ']') return Close(c);
    if (c != ',') return Verdict::kBroken;
    return Emit(",", open_.back() == '{' ? State::kKey : State::kValue);
  }

  CallSink& sink_;
  State state_ = State::kName;
  std::string open_;   // { and [ that are open
  std::string token_;  // a name, a bare value, the start of a quote
  bool is_key_ = false;
};

std::string_view GemmaValue(unsigned types) {
  switch (types) {
    case json_type::kString:
      return "g-string";
    case json_type::kInteger:
      return "g-integer";
    case json_type::kNumber | json_type::kInteger:
      return "g-number";
    case json_type::kBoolean:
      return "g-boolean";
    case json_type::kObject:
      return "g-object";
    case json_type::kArray:
      return "g-array";
    default:
      return "g-value";
  }
}

void AddGemmaRules(GrammarText& text) {
  if (!text.First("g-value")) return;
  text.Rule("g-string", text.Fixed(kGemmaQuote) + " " + text.Until(kGemmaQuote));
  text.Rule("g-integer", R"("-"? ("0" | [1-9] [0-9]*))");
  text.Rule("g-number", R"(g-integer ("." [0-9]+)?)");
  text.Rule("g-boolean", R"("true" | "false")");
  text.Rule("g-value", R"(g-string | g-number | g-boolean | "null" | g-object | g-array)");
  text.Rule("g-member", R"([A-Za-z_] [A-Za-z0-9_]* ":" g-value)");
  text.Rule("g-object", R"("{" (g-member ("," g-member)*)? "}")");
  text.Rule("g-array", R"("[" (g-value ("," g-value)*)? "]")");
}

// Gemma's own notation has no schema of JSON: strings are free up to their quote, other values by
// their type.
std::string GemmaCallText(GrammarText& text, const Tool& tool, const std::string& rule) {
  AddGemmaRules(text);
  std::vector<std::pair<std::string, Json>> sorted;  // as the template sorts them
  const auto properties = tool.schema.find("properties");
  if (properties != tool.schema.end() && properties->is_object()) {
    for (const auto& [key, property] : properties->items()) sorted.emplace_back(key, property);
    std::ranges::sort(sorted, {}, &std::pair<std::string, Json>::first);
  }
  // Optional members in front of the first required one are left out: their commas would need a
  // rule each. Where none is required, any of them follow each other.
  std::string body, any;
  bool any_required = false;
  for (const auto& [key, property] : sorted) {
    const std::string member = fmt::format("{} {}", GbnfLiteral(key + ":"),
                                           GemmaValue(SchemaTypes(property, tool.schema)));
    any += (any.empty() ? "" : " | ") + member;
    if (IsRequired(tool.schema, key)) {
      body += (any_required ? " \",\" " : "") + member;
      any_required = true;
    } else if (any_required) {
      body += fmt::format(" (\",\" {})?", member);
    }
  }
  if (!any_required && !sorted.empty()) {
    const std::string member = text.Rule(rule + "-member", any);
    body = fmt::format("({} (\",\" {})*)?", member, member);
  }
  return fmt::format("{} {} \"}}\" {}", GbnfLiteral("call:" + tool.name + "{"), body,
                     text.Fixed("<tool_call|>"));
}

}  // namespace

FormatEntry Gemma4Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "gemma4",
      .templates = {{"<|tool_call>", "<tool_call|>"}},
      .thoughts = ThinkTagsAnd({{"<|channel>thought\n", kThink}, {"<channel|>", kThinkEnd}}),
      .calls = {{"<|tool_call>", kCall, kAnywhereEven,
                 [](CallSink& sink, const ToolTable&) -> std::unique_ptr<CallMachine> {
                   return std::make_unique<GemmaCall>(sink);
                 }},
                {"<tool_call|>", kSkip, kAnywhere},
                {"<|tool_response>", kSkip, kAnywhere}},
      .hidden = {"<turn|>"},
      .shown = {"<|channel>"},
      .shown_in_calls = {kGemmaQuote},
      .shape = {.open = {"<|tool_call>"}, .separator = {"<|tool_call>"}, .list = true},
      .thought = {.open = {"<|channel>", "thought\n"}, .end = "<channel|>"},
      .call = GemmaCallText,
  };
}

}  // namespace larder::serving::answer
