// OLMo 3: <function_calls>\nname(k='v')\n</function_calls>, a call a line
#include <memory>
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry Olmo3Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "olmo3",
      .templates = {{"<function_calls>"}},
      .calls = {{"<function_calls>", kCall, kAnywhere,
                 [](CallSink& sink, const ToolTable& tools) {
                   return MakePythonLines(sink, tools, "</function_calls>");
                 }}},
      .hidden = {"<|im_end|>"},
      .shape = {.open = {"<function_calls>", "\n"},
                .separator = {"\n"},
                .close = {"\n", "</function_calls>"},
                .list = true},
      .call = [](GrammarText& text, const Tool& tool,
                 const std::string& rule) { return text.PythonCall(tool, rule); },
  };
}

}  // namespace larder::serving::answer
