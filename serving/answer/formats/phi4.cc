// Phi-4-mini: <|tool_call|>{"name", "arguments"}<|/tool_call|>, or functools[{...}]
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry Phi4MiniFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "phi4_mini_json",
      .templates = {{"<|/tool|>"}, {"<|/tool_call|>"}},
      .calls = {{"<|tool_call|>", kCall, kAnywhere, MakeJsonCalls},
                {"<|/tool_call|>", kSkip, kAnywhere},
                {"functools", kCall, kFresh, MakeJsonCalls}},
      .hidden = {"<|end|>"},
      .shape = {.open = {"<|tool_call|>"}, .separator = {"<|tool_call|>"}, .list = true},
      .call =
          [](GrammarText& text, const Tool& tool, const std::string&) {
            return GbnfJsonCall(tool) + " " + text.Fixed("<|/tool_call|>");
          },
      .written =
          [](const std::string& name, const std::string& arguments) {
            return "<|tool_call|>" + CallAsJson(name, arguments) + "<|/tool_call|>";
          },
  };
}

}  // namespace larder::serving::answer
