// Llama 3: a message that consists of {"name", "parameters"}; <|python_tag|>name.call(k="v")
#include <string>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {

FormatEntry Llama3Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "llama3_json",
      .templates = {{"<|start_header_id|>", "\"parameters\""}},
      .calls = {{"<|python_tag|>", kCall, kAnywhere, MakePythonCalls},
                {"{", kCall, kFresh, MakeJsonMessage, 1},
                {";", kSkip, kAfterCall}},
      .hidden = {"<|eot_id|>", "<|eom_id|>"},
      .shape = {.open = {"{\"name\": \""}, .marked = false},
      .call =
          [](GrammarText&, const Tool& tool, const std::string&) {
            std::string name;
            AppendJsonEscaped(name, tool.name);
            return GbnfLiteral(name + "\", \"parameters\": ") + " " + GbnfJson(tool.schema) +
                   " \"}\"";
          },
  };
}

}  // namespace larder::serving::answer
