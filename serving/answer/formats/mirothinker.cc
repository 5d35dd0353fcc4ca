// MiroThinker: <use_mcp_tool><tool_name>name</tool_name><arguments>{...}</arguments>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

std::optional<CallName> ReadMiroName(std::string_view opening) {
  const auto name = TextBetween(opening, "<tool_name>", "</tool_name>");
  if (!name || opening.find("<arguments>") == std::string_view::npos) return std::nullopt;
  return CallName{*name, {}};
}

std::unique_ptr<CallMachine> MakeMiroCall(CallSink& sink, const ToolTable& tools) {
  return MakeNamedCall(sink, tools, {.read = ReadMiroName});
}

}  // namespace

FormatEntry MiroThinkerFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "mirothinker",
      .templates = {{"<use_mcp_tool>"}},
      .calls = {{"<use_mcp_tool>", kCall, kAnywhere, MakeMiroCall},
                {"<server_name>", kCall, kAfterCall, MakeMiroCall},
                {"</arguments>", kSkip, kAfterCall},
                {"</use_mcp_tool>", kSkip, kAfterCall}},
      .shape = {.open = {"<use_mcp_tool>", "\n"},
                .separator = {"\n"},
                .close = {"\n", "</use_mcp_tool>"},
                .list = true},
      .call =
          [](GrammarText&, const Tool& tool, const std::string&) {
            return fmt::format(R"("<server_name>" [A-Za-z0-9_-]+ {} {} "\n</arguments>")",
                               GbnfLiteral("</server_name>\n<tool_name>" + tool.name +
                                           "</tool_name>\n<arguments>\n"),
                               GbnfJson(tool.schema));
          },
  };
}

}  // namespace larder::serving::answer
