// Qwen3-Coder: <tool_call><function=name><parameter=k>v</parameter></function></tool_call>
// Seed-OSS writes the same in <seed:tool_call>.
#include <memory>
#include <string>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

// lines: values stand on lines of their own.
template <bool lines>
std::unique_ptr<CallMachine> MakeFunctionTags(CallSink& sink, const ToolTable& tools) {
  return MakeXmlCall(sink, tools,
                     {.name_open = "<function=",
                      .name_end = ">",
                      .key_open = "<parameter=",
                      .key_end = ">",
                      .value_end = "</parameter>",
                      .call_end = "</function>",
                      .lines = lines});
}

std::string FunctionTags(const Tool& tool, const std::string& parameters) {
  return GbnfLiteral("\n<function=" + tool.name + ">\n") + parameters + " \"</function>\\n\" ";
}

}  // namespace

FormatEntry QwenXmlFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "qwen3_coder",
      .templates = {{"<function=", "<parameter="}},
      .calls = {{"<tool_call>", kCall, kAnywhere, MakeFunctionTags<true>},
                {"<function=", kCall, kAnywhere, MakeFunctionTags<true>, 10},
                {"</tool_call>", kSkip, kAfterCall}},
      .hidden = {"<|im_end|>"},
      .shape = {.open = {"<tool_call>"}, .separator = {"\n", "<tool_call>"}, .list = true},
      .call =
          [](GrammarText& text, const Tool& tool, const std::string& rule) {
            const auto tags = [](const std::string& key, bool) -> TagPair {
              return {GbnfLiteral("<parameter=" + key + ">\n"), "\n</parameter>\n"};
            };
            return FunctionTags(tool, text.XmlParameters(tool, rule, tags)) +
                   text.Fixed("</tool_call>");
          },
  };
}

FormatEntry SeedOssFormat() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "seed_oss",
      .templates = {{"<seed:", "<function="}},
      .thoughts = ThinkTagsAnd({{"<seed:think>", kThink}, {"</seed:think>", kThinkEnd}}),
      .calls = {{"<seed:tool_call>", kCall, kAnywhere, MakeFunctionTags<false>},
                {"</seed:tool_call>", kSkip, kAfterCall}},
      .hidden = {"<seed:eos>"},
      .shape = {.open = {"<seed:tool_call>"},
                .separator = {"\n", "<seed:tool_call>"},
                .list = true},
      .thought = {.open = {"<seed:think>"}, .end = "</seed:think>"},
      .call =
          [](GrammarText& text, const Tool& tool, const std::string& rule) {
            const auto tags = [](const std::string& key, bool) -> TagPair {
              return {GbnfLiteral("<parameter=" + key + ">"), "</parameter>\n"};
            };
            return FunctionTags(tool, text.XmlParameters(tool, rule, tags)) +
                   text.Fixed("</seed:tool_call>");
          },
  };
}

}  // namespace larder::serving::answer
