// Kimi K2: <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

constexpr std::string_view kKimiArguments = "<|tool_call_argument_begin|>";

std::optional<CallName> ReadKimiName(std::string_view opening) {
  const size_t end = opening.find(kKimiArguments);
  if (end == std::string_view::npos) return std::nullopt;
  CallName read{{}, StripJsonSpace(opening.substr(0, end))};
  read.name = read.id.substr(0, read.id.rfind(':'));
  if (read.name.starts_with("functions.")) read.name.remove_prefix(10);
  return read;
}

}  // namespace

FormatEntry KimiK2Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "kimi_k2",
      .templates = {{"<|tool_call_argument_begin|>"}, {"<|im_middle|>", "tool_declare"}},
      .thoughts = ThinkTagsAnd({{"◁think▷", kThink, kFresh}, {"◁/think▷", kThinkEnd, kFresh}}),
      .calls = {{"<|tool_calls_section_begin|>", kSkip, kAnywhereEven},
                {"<|tool_call_begin|>", kCall, kAnywhereEven,
                 [](CallSink& sink, const ToolTable& tools) {
                   return MakeNamedCall(sink, tools, {.read = ReadKimiName});
                 }},
                {"<|tool_call_end|>", kSkip, kAnywhere},
                {"<|tool_calls_section_end|>", kSkip, kAnywhere}},
      .hidden = {"<|im_end|>"},
      .shown_in_calls = {kKimiArguments},
      .ids = {.numbered = true},
      .shape = {.open = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
                .separator = {"<|tool_call_begin|>"},
                .close = {"<|tool_calls_section_end|>"},
                .list = true},
      .call =
          [](GrammarText& text, const Tool& tool, const std::string&) {
            return fmt::format("{} [0-9]+ {} {} {}", GbnfLiteral("functions." + tool.name + ":"),
                               text.Fixed(kKimiArguments), GbnfJson(tool.schema),
                               text.Fixed("<|tool_call_end|>"));
          },
  };
}

}  // namespace larder::serving::answer
