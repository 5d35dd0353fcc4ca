// Command R: Action: ```json [{"tool_name", "parameters"}]```
// Command R7B: <|START_ACTION|>[{"tool_call_id", "tool_name", "parameters"}]<|END_ACTION|>
#include <string>
#include <string_view>
#include <vector>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {
namespace {

std::vector<std::string_view> BetweenParts() {
  return {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>",
          "<|END_OF_TURN_TOKEN|>"};
}

}  // namespace

FormatEntry CommandRFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "command_r",
      .templates = {{"Action: ```json"}, {"Action:", "```json"}},
      .calls = {{"Action: ```json", kCall, kAnywhere, MakeJsonCalls},
                {"Action:```json", kCall, kAnywhere, MakeJsonCalls},
                {"Action:\n```json", kCall, kAnywhere, MakeJsonCalls},
                {"```", kSkip, kAfterCall}},
      .hidden = BetweenParts(),
      .shape = {.open = {"Action: ```json", "\n[\n"},
                .separator = {",\n"},
                .close = {"\n]```"},
                .list = true},
      .call =
          [](GrammarText&, const Tool& tool, const std::string&) {
            return GbnfJsonCall(tool, {.name = "tool_name",
                                       .arguments = "parameters",
                                       .before = "    {\n        ",
                                       .behind = "\n    }"});
          },
  };
}

FormatEntry CommandR7bFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "cohere2",
      .templates = {{"<|START_ACTION|>"}},
      .thoughts = ThinkTagsAnd({{"<|START_THINKING|>", kThink}, {"<|END_THINKING|>", kThinkEnd}}),
      .calls = {{"<|START_ACTION|>", kCall, kAnywhereEven, MakeJsonCalls},
                {"<|END_ACTION|>", kSkip, kAnywhere}},
      .hidden = BetweenParts(),
      .shape = {.open = {"<|START_ACTION|>", "[\n    "},
                .separator = {",\n    "},
                .close = {"\n]", "<|END_ACTION|>"},
                .list = true},
      .thought = {.open = {"<|START_THINKING|>"}, .end = "<|END_THINKING|>"},
      .call =
          [](GrammarText&, const Tool& tool, const std::string&) {
            return R"("{\"tool_call_id\": \"" [0-9]+ )" +
                   GbnfJsonCall(tool,
                                {.name = "tool_name", .arguments = "parameters", .before = "\", "});
          },
  };
}

}  // namespace larder::serving::answer
