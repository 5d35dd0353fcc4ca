// DeepSeek. V3 and R1: <｜tool▁call▁begin｜>function<｜tool▁sep｜>name\n```json\n{...}\n```
// V3.1: <｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}
// V4: <｜DSML｜invoke name="name"><｜DSML｜parameter name="k" string="true">v
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

std::optional<CallName> ReadDeepSeekName(std::string_view opening) {
  size_t separator_bytes = 0;
  size_t at = std::string_view::npos;
  for (const std::string_view separator : {"<｜tool▁sep｜>", "<｜tool_sep｜>"}) {
    if (at != std::string_view::npos) break;
    at = opening.find(separator);
    separator_bytes = separator.size();
  }
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view behind = opening.substr(at + separator_bytes);
  const size_t line = behind.find('\n');
  const std::string_view first = StripJsonSpace(behind.substr(0, line));
  const bool named_behind =
      line != std::string_view::npos && !first.empty() && !first.starts_with("```");
  return CallName{named_behind ? first : StripJsonSpace(opening.substr(0, at)), {}};
}

std::unique_ptr<CallMachine> MakeDeepSeekCall(CallSink& sink, const ToolTable& tools) {
  return MakeNamedCall(sink, tools, {.read = ReadDeepSeekName});
}

// What V3 and V3.1 have in common.
FormatEntry DeepSeek() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = {},
      .calls = {{"<｜tool▁calls▁begin｜>", kSkip, kAnywhereEven},
                {"<｜tool_calls_begin｜>", kSkip, kAnywhereEven},
                {"<｜tool▁call▁begin｜>", kCall, kAnywhereEven, MakeDeepSeekCall},
                {"<｜tool_call_begin｜>", kCall, kAnywhereEven, MakeDeepSeekCall},
                {"```", kSkip, kAfterCall},
                {"<｜tool▁call▁end｜>", kSkip, kAnywhere},
                {"<｜tool_call_end｜>", kSkip, kAnywhere},
                {"<｜tool▁calls▁end｜>", kSkip, kAnywhere},
                {"<｜tool_calls_end｜>", kSkip, kAnywhere}},
      .hidden = {"<｜end▁of▁sentence｜>"},
      .shown_in_calls = {"<｜tool▁sep｜>", "<｜tool_sep｜>"},
      .shape = {.open = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                .separator = {"<｜tool▁call▁begin｜>"},
                .close = {"<｜tool▁calls▁end｜>"},
                .list = true},
  };
}

std::unique_ptr<CallMachine> MakeDsmlCall(CallSink& sink, const ToolTable& tools) {
  return MakeXmlCall(sink, tools,
                     {.name_end = "\">",
                      .key_open = "<｜DSML｜parameter name=\"",
                      .key_end = "\"",
                      .value_end = "</｜DSML｜parameter>",
                      .call_end = "</｜DSML｜invoke>",
                      .typed = true});
}

TagPair DsmlTags(const std::string& key, bool is_string) {
  return {GbnfLiteral("<") + " " + GbnfToken("｜DSML｜") + " " +
              GbnfLiteral(fmt::format("parameter name=\"{}\" string=\"{}\">", key, is_string)),
          "</｜DSML｜parameter>\n"};
}

}  // namespace

FormatEntry DeepSeekV3Format() {
  FormatEntry entry = DeepSeek();
  entry.name = "deepseek_v3";
  entry.templates = {{"<｜tool▁call▁begin｜>", "```json"}};
  entry.shape.separator = {"\n", "<｜tool▁call▁begin｜>"};
  entry.call = [](GrammarText&, const Tool& tool, const std::string&) {
    return fmt::format(
        R"("function" %token "<｜tool▁sep｜>" {} {} "\n```" %token "<｜tool▁call▁end｜>")",
        GbnfLiteral(tool.name + "\n```json\n"), GbnfJson(tool.schema));
  };
  entry.written = [](const std::string& name, const std::string& arguments) {
    return fmt::format(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        name, arguments);
  };
  return entry;
}

FormatEntry DeepSeekV31Format() {
  FormatEntry entry = DeepSeek();
  entry.name = "deepseek_v31";
  entry.templates = {{"<｜tool▁call▁begin｜>"}};
  entry.call = [](GrammarText&, const Tool& tool, const std::string&) {
    return fmt::format(R"({} %token "<｜tool▁sep｜>" {} %token "<｜tool▁call▁end｜>")",
                       GbnfLiteral(tool.name), GbnfJson(tool.schema));
  };
  entry.written = [](const std::string& name, const std::string& arguments) {
    return fmt::format(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        name, arguments);
  };
  return entry;
}

FormatEntry DeepSeekV4Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "deepseek_v4",
      .templates = {{"DSML", "invoke"}},
      .calls = {{"<｜DSML｜tool_calls>", kSkip, kAnywhereEven},
                {"<｜DSML｜function_calls>", kSkip, kAnywhereEven},
                {"<｜DSML｜invoke name=\"", kCall, kAnywhereEven, MakeDsmlCall},
                {"</｜DSML｜tool_calls>", kSkip, kAnywhere},
                {"</｜DSML｜function_calls>", kSkip, kAnywhere}},
      .hidden = {"<｜end▁of▁sentence｜>"},
      .shown_in_calls = {"｜DSML｜"},
      .shape = {.open = {"<｜DSML｜tool_calls>", "\n"},
                .separator = {"\n"},
                .close = {"\n", "</｜DSML｜tool_calls>"},
                .list = true},
      .call =
          [](GrammarText& text, const Tool& tool, const std::string& rule) {
            return text.Fixed("<｜DSML｜invoke name=\"" + tool.name + "\">\n") +
                   text.XmlParameters(tool, rule, DsmlTags) + " " + text.Fixed("</｜DSML｜invoke>");
          },
      .tag_token = "｜DSML｜",
  };
}

}  // namespace larder::serving::answer
