// Functionary. 3.1: <function=name>{...}</function>
// 3.2: >>>name\n{...}; `all` in place of a name is a text for everybody.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serving/answer/format_entry.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline answer {
namespace {

template <char name_end>
std::optional<CallName> ReadFunctionaryName(std::string_view opening) {
  const size_t end = opening.find(name_end);
  if (end == std::string_view::npos) return std::nullopt;
  return CallName{opening.substr(0, end), {}};
}

template <char name_end>
std::unique_ptr<CallMachine> MakeFunctionary(CallSink& sink, const ToolTable& tools) {
  return MakeNamedCall(sink, tools, {.read = ReadFunctionaryName<name_end>, .name_end = name_end});
}

}  // namespace

FormatEntry Functionary31Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "functionary_v31",
      .templates = {{"<function="}},
      .calls = {{"<function=", kCall, kAnywhere, MakeFunctionary<'>'>},
                {"</function>", kSkip, kAfterCall}},
      .hidden = {"<|eot_id|>", "<|eom_id|>"},
      .shape = {.open = {"<function="}, .separator = {"<function="}, .list = true},
      .call =
          [](GrammarText&, const Tool& tool, const std::string&) {
            return fmt::format("{} {} \"</function>\"", GbnfLiteral(tool.name + ">"),
                               GbnfJson(tool.schema));
          },
  };
}

FormatEntry Functionary32Format() {
  using enum Marker::Action;
  using enum Marker::Where;
  return {
      .name = "functionary_v32",
      .templates = {{">>>all"}},
      .calls = {{">>>", kCall, kAnywhere, MakeFunctionary<'\n'>},
                {"", kCall, kFresh, MakeFunctionary<'\n'>}},
      .always = {{"all\n", kSkip, kFresh}, {">>>all\n", kSkip, kAnywhere}},
      .hidden = {"<|eot_id|>", "<|eom_id|>"},
      .shape = {.open = {">>>"}, .separator = {">>>"}, .list = true},
      .call =
          [](GrammarText&, const Tool& tool, const std::string&) {
            return GbnfLiteral(tool.name + "\n") + " " + GbnfJson(tool.schema);
          },
  };
}

}  // namespace larder::serving::answer
