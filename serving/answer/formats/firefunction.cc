// FireFunction: functools[{"name", "arguments"}]
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry FireFunctionFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "firefunction",
      .templates = {{"functools["}},
      .calls = {{"functools[", kCall, kAnywhere, MakeJsonCalls, 1},
                {" functools[", kCall, kAnywhere, MakeJsonCalls, 1}},
      .hidden = {"<|eot_id|>", "<|eom_id|>"},
      .shape = {.open = {"functools["}, .separator = {", "}, .close = {"]"}, .list = true},
      .call = [](GrammarText&, const Tool& tool, const std::string&) { return GbnfJsonCall(tool); },
  };
}

}  // namespace larder::serving::answer
