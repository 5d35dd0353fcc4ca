// GLM: <tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>
#include <fmt/format.h>

#include <string>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {

FormatEntry GlmFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "glm45",
      .templates = {{"<arg_key>"}},
      .calls = {{"<tool_call>", kCall, kAnywhere,
                 [](CallSink& sink, const ToolTable& tools) {
                   return MakeXmlCall(sink, tools,
                                      {.key_open = "<arg_key>",
                                       .key_end = "</arg_key>",
                                       .value_open = "<arg_value>",
                                       .value_end = "</arg_value>",
                                       .call_end = "</tool_call>"});
                 }}},
      .hidden = {"<|observation|>", "<|user|>", "<|endoftext|>"},
      .shown_in_calls = {"</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
      .shape = {.open = {"<tool_call>"}, .separator = {"\n", "<tool_call>"}, .list = true},
      .call =
          [](GrammarText& text, const Tool& tool, const std::string& rule) {
            const auto tags = [](const std::string& key, bool) -> TagPair {
              return {fmt::format(R"({} {} {} "\n" {})", GbnfToken("<arg_key>"), GbnfLiteral(key),
                                  GbnfToken("</arg_key>"), GbnfToken("<arg_value>")),
                      "</arg_value>\n"};
            };
            return GbnfLiteral(tool.name + "\n") + text.XmlParameters(tool, rule, tags) + " " +
                   text.Fixed("</tool_call>");
          },
  };
}

}  // namespace larder::serving::answer
