// MiniMax-M2: <minimax:tool_call><invoke name="name"><parameter name="k">v</parameter></invoke>
// </minimax:tool_call>
#include <fmt/format.h>

#include <memory>
#include <string>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

std::unique_ptr<CallMachine> MakeInvoke(CallSink& sink, const ToolTable& tools) {
  return MakeXmlCall(sink, tools,
                     {.name_end = "\">",
                      .key_open = "<parameter name=\"",
                      .key_end = "\">",
                      .value_end = "</parameter>",
                      .call_end = "</invoke>"});
}

}  // namespace

FormatEntry MiniMaxM2Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "minimax_m2",
      .templates = {{"<minimax:tool_call>"}},
      .calls = {{"<minimax:tool_call>", kSkip, kAnywhereEven},
                {"<invoke name=\"", kCall, kFresh, MakeInvoke},
                {"</minimax:tool_call>", kSkip, kAnywhere}},
      .hidden = {"[e~["},
      .shape = {.open = {"<minimax:tool_call>", "\n"},
                .separator = {"\n"},
                .close = {"\n", "</minimax:tool_call>"},
                .list = true},
      .call =
          [](GrammarText& text, const Tool& tool, const std::string& rule) {
            const auto tags = [](const std::string& key, bool) -> TagPair {
              return {GbnfLiteral(fmt::format("<parameter name=\"{}\">", key)), "</parameter>\n"};
            };
            return GbnfLiteral(fmt::format("<invoke name=\"{}\">\n", tool.name)) +
                   text.XmlParameters(tool, rule, tags) + " \"</invoke>\"";
          },
  };
}

}  // namespace larder::serving::answer
