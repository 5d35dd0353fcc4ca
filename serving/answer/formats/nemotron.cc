// Nemotron Nano 2: <TOOLCALL>[{"name", "arguments"}]</TOOLCALL>
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry NemotronFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "nemotron_json",
      .templates = {{"<TOOLCALL>"}},
      .calls = {{"<TOOLCALL>", kCall, kAnywhere, MakeJsonCalls},
                {"</TOOLCALL>", kSkip, kAfterCall}},
      .hidden = {"<SPECIAL_12>"},
      .shape = {.open = {"<TOOLCALL>", "["},
                .separator = {", "},
                .close = {"]", "</TOOLCALL>"},
                .list = true},
      .call = [](GrammarText&, const Tool& tool, const std::string&) { return GbnfJsonCall(tool); },
      .written =
          [](const std::string& name, const std::string& arguments) {
            return "<TOOLCALL>[" + CallAsJson(name, arguments) + "]</TOOLCALL>";
          },
  };
}

}  // namespace larder::serving::answer
