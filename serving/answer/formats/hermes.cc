// Hermes, Qwen 2.5 and 3, and many more: <tool_call>{"name", "arguments"}</tool_call>
#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry HermesFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "hermes",
      .templates = {{"<tool_call>"}},
      // Qwen2.5-Coder writes the JSON alone, in a fence or in the tags of the list that it was
      // given.
      .calls = {{"<tool_call>", kCall, kAnywhere, MakeJsonCalls},
                {"</tool_call>", kSkip, kAfterCall},
                {"{", kCall, kFresh, MakeJsonMessage, 1},
                {"```json\n", kCall, kFresh, MakeJsonMessage},
                {"```", kSkip, kAfterCall},
                {"<tools>", kCall, kFresh, MakeJsonMessage},
                {"</tools>", kSkip, kAfterCall}},
      .hidden = {"<|im_end|>"},
      .shape = {.open = {"<tool_call>"}, .separator = {"\n", "<tool_call>"}, .list = true},
      .call =
          [](GrammarText& text, const Tool& tool, const std::string&) {
            return GbnfJsonCall(tool, {.before = "\n{", .behind = "}\n"}) + " " +
                   text.Fixed("</tool_call>");
          },
      .written =
          [](const std::string& name, const std::string& arguments) {
            return "<tool_call>\n" + CallAsJson(name, arguments) + "\n</tool_call>";
          },
  };
}

}  // namespace larder::serving::answer
