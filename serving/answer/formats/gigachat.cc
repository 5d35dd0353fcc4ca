// GigaChat: <|function_call|>{"name", "arguments"}
#include <string>

#include "serving/answer/format_entry.h"

namespace larder::serving::inline answer {

FormatEntry GigaChatFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "gigachat",
      .templates = {{"<|role_sep|>", "function"}},
      .calls = {{"<|function_call|>", kCall, kAnywhere, MakeJsonCalls},
                {"function call<|role_sep|>", kCall, kAnywhere, MakeJsonCalls}},
      .hidden = {"<|message_sep|>"},
      .shown_in_calls = {"<|role_sep|>"},
      .shape = {.open = {"<|function_call|>"}},
      .call = [](GrammarText&, const Tool& tool, const std::string&) { return GbnfJsonCall(tool); },
  };
}

}  // namespace larder::serving::answer
