// LFM2: <|tool_call_start|>[name(k="v")]<|tool_call_end|>, or JSON in the same markers
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry Lfm2Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "lfm2",
      .templates = {{"<|tool_list_start|>"}},
      .calls = {{"<|tool_call_start|>", kCall, kAnywhereEven, MakePythonCalls},
                {"<|tool_call_end|>", kSkip, kAnywhere}},
      .hidden = {"<|im_end|>"},
      .shape = {.open = {"<|tool_call_start|>", "["},
                .separator = {", "},
                .close = {"]", "<|tool_call_end|>"},
                .list = true},
      .call = [](GrammarText& text, const Tool& tool,
                 const std::string& rule) { return text.PythonCall(tool, rule); },
      .written =
          [](const std::string& name, const std::string& arguments) {
            return "<|tool_call_start|>[" + CallAsJson(name, arguments) + "]<|tool_call_end|>";
          },
  };
}

}  // namespace larder::serving::answer
