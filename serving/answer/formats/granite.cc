// Granite 3: <|tool_call|>[{"name", "arguments"}]
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry GraniteFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "granite",
      .templates = {{"<|tool_call|>"}},
      // 3.2 opens and ends its thoughts with a line each.
      .thoughts = ThinkTagsAnd(
          {{"Here is my thought process:", kThink, kFresh}, {"Here is my response:", kThinkEnd}}),
      .calls = {{"<|tool_call|>", kCall, kAnywhere, MakeJsonCalls}},
      .hidden = {"<|end_of_text|>"},
      .shape = {.open = {"<|tool_call|>", "["}, .separator = {", "}, .close = {"]"}, .list = true},
      .call = [](GrammarText&, const Tool& tool, const std::string&) { return GbnfJsonCall(tool); },
      .written =
          [](const std::string& name, const std::string& arguments) {
            return "<|tool_call|>[" + CallAsJson(name, arguments) + "]";
          },
  };
}

}  // namespace larder::serving::answer
