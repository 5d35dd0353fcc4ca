// Mistral: [TOOL_CALLS][{"name", "arguments"}], and later [TOOL_CALLS]name[ARGS]{...}; both are
// read in both formats.
#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

// name[ARGS], name[CALL_ID]id[ARGS]
std::optional<CallName> ReadMistralName(std::string_view opening) {
  return CallName{.name = opening.substr(0, opening.find('[')),
                  .id = TextBetween(opening, "[CALL_ID]", "[ARGS]").value_or("")};
}

FormatEntry EitherMistral() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = {},
      .thoughts = ThinkTagsAnd({{"[THINK]", kThink}, {"[/THINK]", kThinkEnd}}),
      .calls = {{"[TOOL_CALLS]", kCall, kAnywhereEven,
                 [](CallSink& sink, const ToolTable& tools) {
                   return MakeNamedCall(sink, tools, {.read = ReadMistralName, .or_json = true});
                 }}},
      .shown_in_calls = {"[ARGS]", "[CALL_ID]"},
      .ids = {.prefix = "", .letters = 9},
      .thought = {.open = {"[THINK]"}, .end = "[/THINK]"},
  };
}

}  // namespace

FormatEntry MistralFormat() {
  FormatEntry entry = EitherMistral();
  entry.name = "mistral";
  entry.templates = {{"[TOOL_CALLS]"}};
  entry.shape = {.open = {"[TOOL_CALLS]", "["}, .separator = {", "}, .close = {"]"}, .list = true};
  entry.call = [](GrammarText&, const Tool& tool, const std::string&) {
    return GbnfJsonCall(tool);
  };
  return entry;
}

FormatEntry MistralArgsFormat() {
  FormatEntry entry = EitherMistral();
  entry.name = "mistral_args";
  entry.templates = {{"[TOOL_CALLS]", "[ARGS]"}};
  entry.shape = {.open = {"[TOOL_CALLS]"}, .separator = {"[TOOL_CALLS]"}, .list = true};
  entry.call = [](GrammarText& text, const Tool& tool, const std::string&) {
    return fmt::format("{} {} {}", GbnfLiteral(tool.name), text.Fixed("[ARGS]"),
                       GbnfJson(tool.schema));
  };
  return entry;
}

}  // namespace larder::serving::answer
