// Apriel: <tool_calls>[{"name", "arguments"}]</tool_calls>, [BEGIN FINAL RESPONSE]
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry AprielFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "apriel",
      .templates = {{"<tool_calls>"}},
      .thoughts = ThinkTagsAnd({{"<thinking>", kThink, kFresh},
                                {"</thinking>", kThinkEnd, kFresh},
                                {"Here are my reasoning steps:", kThink, kFresh},
                                {"[BEGIN FINAL RESPONSE]", kThinkEnd, kFresh},
                                {"[END FINAL RESPONSE]", kSkip}}),
      .calls = {{"<tool_calls>", kCall, kAnywhere, MakeJsonCalls},
                {"</tool_calls>", kSkip, kAfterCall}},
      .hidden = {"<|end|>"},
      .shape = {.open = {"<tool_calls>", "["},
                .separator = {", "},
                .close = {"]", "</tool_calls>"},
                .list = true},
      .thought = {.open = {}, .end = "[BEGIN FINAL RESPONSE]"},
      .call = [](GrammarText&, const Tool& tool, const std::string&) { return GbnfJsonCall(tool); },
  };
}

}  // namespace larder::serving::answer
