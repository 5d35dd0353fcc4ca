// Models whose template knows no tools are told to write a message that consists of
// {"tool_call": {"name", "arguments"}}
#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry GenericFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "generic",
      .calls = {{"{", kCall, kFresh, MakeJsonMessage, 1},
                {"```json\n", kCall, kFresh, MakeJsonMessage},
                {"```", kSkip, kAfterCall}},
      .trims = false,
      .shape = {.open = {"{\"tool_call\": "}, .marked = false, .fence = "```json\n"},
      .call = [](GrammarText&, const Tool& tool,
                 const std::string&) { return GbnfJsonCall(tool, {.behind = "}}"}); },
      .written =
          [](const std::string& name, const std::string& arguments) {
            return "{\"tool_call\": " + CallAsJson(name, arguments) + "}";
          },
      .written_as = "a JSON object",
  };
}

}  // namespace larder::serving::answer
