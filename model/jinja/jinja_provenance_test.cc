// Which bytes of a rendering come from the template (shown in [brackets]) and which from data.
#include <gtest/gtest.h>

#include "model/jinja/jinja_template.h"

namespace larder::model::inline jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string Shown(const std::string& source) {
  const Json data = {{"x", " ab,CD "}, {"l", {"one", "two"}}, {"d", {{"k", "v"}}}, {"role", "user"},
                     {"n", 5},         {"h", "<ß>"}};
  JinjaVariables in;
  for (const auto& [name, value] : data.items()) in.data.emplace_back(name, &value);
  in.trusted = {{"bos_token", "<s>"}};
  in.is_trusted = [](std::string_view key, std::string_view value) {
    return key == "role" && value == "user";
  };
  std::string out;
  for (const TextPiece& piece : JinjaTemplate::Parse(source, "test")->Render(in))
    out += piece.trusted ? "[" + piece.text + "]" : piece.text;
  return out;
}

TEST(JinjaProvenance, PiecesKnowTheirOrigin) {
  EXPECT_EQ(Shown("a{{ x }}b"), "[a] ab,CD [b]");
  EXPECT_EQ(Shown("a{{ 'b' }}"), "[ab]");
  EXPECT_EQ(Shown("{{ bos_token }}{{ x }}"), "[<s>] ab,CD ");
  EXPECT_EQ(Shown("{{ '<|' + role + '|>' }}"), "[<|user|>]");
  EXPECT_EQ(Shown("{{ n }}{{ none }}{{ true }}"), "[5NoneTrue]");
}

TEST(JinjaProvenance, OperationsKeepIt) {
  EXPECT_EQ(Shown("{{ '<' + x + '>' }}"), "[<] ab,CD [>]");
  EXPECT_EQ(Shown("{{ '<' ~ x.strip() ~ n ~ '>' }}"), "[<]ab,CD[5>]");
  EXPECT_EQ(Shown("{{ (x + '|end')[-5:] }}"), " [|end]");
  EXPECT_EQ(Shown("{{ ('a' + x)[::-1] }}"), " DC,ba [a]");
  EXPECT_EQ(Shown("{{ x.split(',')|join('|') }}"), " ab[|]CD ");
  EXPECT_EQ(Shown("{{ '+'.join(l) }}"), "one[+]two");
  EXPECT_EQ(Shown("{{ x.replace(',', ';') }}"), " ab[;]CD ");
  EXPECT_EQ(Shown("{{ x|replace('ab', d.k)|trim }}"), "v,CD");
  EXPECT_EQ(Shown("{{ ('q' + x)|upper }}{{ x.lower() }}"), "[Q] AB,CD  ab,cd ");
  EXPECT_EQ(Shown("{{ h|upper }}{{ h|e }}"), "<SS>&lt;ß&gt;");
  EXPECT_EQ(Shown("{{ '<%s>' % x.strip() }}"), "[<]ab,CD[>]");
  EXPECT_EQ(Shown("{{ '<{}>{k}'.format(x.strip(), k=l[0]) }}"), "[<]ab,CD[>]one");
  EXPECT_EQ(Shown("{{ d|tojson }}"), "{\"k\": \"v\"}");
  EXPECT_EQ(Shown("{{ l }}"), "['one', 'two']");
  EXPECT_EQ(Shown("{{ ('a' + x) * 2 }}"), "[a] ab,CD [a] ab,CD ");
  EXPECT_EQ(Shown("{% set y %}a{{ x }}{% endset %}{{ y }}b"), "[a] ab,CD [b]");
  EXPECT_EQ(Shown("{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(l[1]) }}"), "[<]two[>]");
  EXPECT_EQ(Shown("{% filter trim %} {{ x }} {% endfilter %}"), "ab,CD");
  EXPECT_EQ(Shown("{{ ('a\\n' + x)|indent(1) }}"), "[a\n ] ab,CD ");
  EXPECT_EQ(Shown("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}"), "k[=]v");
  EXPECT_EQ(Shown("{{ x|default('y') }}{{ nothing|default('y') }}"), " ab,CD [y]");
  EXPECT_EQ(Shown("{{ x[1] }}{{ x|first }}{{ l|last|list|join }}"), "a two");
}

}  // namespace
}  // namespace larder::model::jinja
