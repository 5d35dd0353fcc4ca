// Hunyuan: <tool_calls>[{"name", "arguments"}]</tool_calls>, <answer>text</answer> behind a thought
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry HunyuanFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "hunyuan_a13b",
      .templates = {{"<answer>", "</answer>"}, {"<tool_calls>", "<|extra_0|>"}},
      .thoughts = ThinkTagsAnd({{"<answer>", kSkip, kFresh}, {"</answer>", kSkip}}),
      .calls = {{"<tool_calls>", kCall, kAnywhere, MakeJsonCalls},
                {"</tool_calls>", kSkip, kAfterCall}},
      .shape = {.open = {"<tool_calls>", "["},
                .separator = {", "},
                .close = {"]", "</tool_calls>"},
                .list = true},
      .call = [](GrammarText&, const Tool& tool, const std::string&) { return GbnfJsonCall(tool); },
      .written =
          [](const std::string& name, const std::string& arguments) {
            return "<tool_calls>[" + CallAsJson(name, arguments) + "]</tool_calls>";
          },
  };
}

}  // namespace larder::serving::answer
