// What hostile templates can do: nothing but fail with a line that says where.
#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "model/jinja/jinja_template.h"

namespace larder::model::inline jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string Outcome(const std::string& source, const Json& variables = Json::object(),
                    JinjaLimits limits = {}) {
  JinjaVariables in;
  for (const auto& [name, value] : variables.items()) in.data.emplace_back(name, &value);
  try {
    return JoinPieces(JinjaTemplate::Parse(source, "hostile", limits)->Render(in));
  } catch (const Error& e) {
    return e.what();
  }
}

// So that a test takes milliseconds.
JinjaLimits Small() {
  JinjaLimits limits;
  limits.steps = 500'000;
  limits.memory_bytes = 16 << 20;
  limits.output_bytes = 4 << 20;
  return limits;
}

std::string Times(const std::string& text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

void ExpectRefused(const std::string& source, const char* says, JinjaLimits limits = Small()) {
  const std::string outcome = Outcome(source, Json::object(), limits);
  EXPECT_TRUE(outcome.starts_with("hostile: line "))
      << source.substr(0, 80) << ": " << outcome.substr(0, 200);
  EXPECT_NE(outcome.find(says), std::string::npos)
      << source.substr(0, 80) << ": " << outcome.substr(0, 200);
}

TEST(JinjaLimits, NestingInTheSource) {
  for (const char* open : {"(", "[", "{1:", "not ", "-", "x(", "x[", "1 if ", "[x for", "x|f("}) {
    const std::string outcome = Outcome("{{ " + Times(open, 100'000) + " }}");
    EXPECT_TRUE(outcome.starts_with("hostile: line 1: ")) << open << outcome.substr(0, 100);
  }
  ExpectRefused("{{ " + Times("(", 5000) + "1" + Times(")", 5000) + " }}", "nested too deeply");
  ExpectRefused(Times("{% if 1 %}", 5000) + Times("{% endif %}", 5000), "nested too deeply");
  ExpectRefused(Times("{% for x in y %}\n", 5000), "nested too deeply");
  ExpectRefused("{{ 1" + Times(" + 1", 5000) + " }}", "nested too deeply");
  ExpectRefused("{{ x" + Times(".a", 5000) + " }}", "nested too deeply");
  ExpectRefused("{{ x" + Times("|f", 5000) + " }}", "nested too deeply");
  EXPECT_EQ(Outcome("{{ 1" + Times(" ~ 1", 5000) + " }}").size(), 5001u)
      << "a list of operands is not deep";
  EXPECT_EQ(Outcome("{% if 0 %}" + Times("{% elif 0 %}", 5000) + "{% else %}x{% endif %}"), "x");
}

TEST(JinjaLimits, StepsAndRecursion) {
  ExpectRefused(
      "\n{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
      "{% endfor %}{% endfor %}{% endfor %}",
      "steps");
  ExpectRefused("{% macro m() %}\n{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply");
  ExpectRefused(
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "nested too deeply");
  ExpectRefused(
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
      "steps");
  ExpectRefused("{{ range(10000000) }}", "Range too big");
}

TEST(JinjaLimits, Memory) {
  ExpectRefused("{{ 'ab' * 9000000000 }}", "too large");
  ExpectRefused("{{ [1] * 9000000000 }}", "too large");
  ExpectRefused(
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}",
      "");
  ExpectRefused(
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "");
  ExpectRefused("{% set x = 'a' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}",
                "steps");
  ExpectRefused("{{ ('a' * 100000)|replace('a', 'b' * 100000) }}", "too long");
  ExpectRefused("{{ ('a' * 1000000).join(range(100000)|map('string')|list) }}", "steps");
  ExpectRefused("{{ '%999999999d' % 1 }}", "format");
  ExpectRefused("{{ '{:999999999}'.format(1) }}", "format");
  ExpectRefused("{{ 'x'.center(99999999999) }}", "too large");
  ExpectRefused("{{ 'x'|indent(99999999999) }}", "too large");
  ExpectRefused("{{ [1]|tojson(indent=99999999999) }}", "too large");
  ExpectRefused("{% set x %}{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}{% endset %}",
                "");
}

TEST(JinjaLimits, ValuesThatHoldThemselves) {
  ExpectRefused("{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}", "nested too deeply");
  ExpectRefused("{% set l = [1] %}{% set _ = l.append(l) %}{{ l|tojson }}", "nested too deeply");
  ExpectRefused(
      "{% set a = [1] %}{% set _ = a.append(a) %}{% set b = [1] %}{% set _ = b.append(b) %}{{ a == "
      "b }}",
      "nested too deeply");
  ExpectRefused("{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}", "nested too deeply");
  EXPECT_EQ(
      Outcome(
          "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}{{ l|length }}"),
      "2");
}

TEST(JinjaLimits, Numbers) {
  ExpectRefused("{{ 9223372036854775807 + 1 }}", "too large");
  ExpectRefused("{{ 99999999999999999999 }}", "too large");
  ExpectRefused("{{ 2 ** 63 }}", "too large");
  ExpectRefused("{{ 3 ** 99999999999 }}", "too large");
  ExpectRefused("{{ -9223372036854775807 - 2 }}", "too large");
  ExpectRefused("{{ 5 // 0 }}", "zero");
  EXPECT_EQ(Outcome("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  ExpectRefused("{{ (-9223372036854775807 - 1) // -1 }}", "too large");
  ExpectRefused("{{ (-9223372036854775807 - 1)|abs }}", "abs");
  EXPECT_EQ(Outcome("{{ 'abc'[9223372036854775807:] }}{{ 'abc'[::9223372036854775807] }}{{ "
                    "'abc'[-9223372036854775807:] }}"),
            "aabc");
}

TEST(JinjaLimits, SmallLimitsAreKept) {
  JinjaLimits limits;
  limits.steps = 100;
  ExpectRefused("{% for i in range(99) %}x{% endfor %}", "more than 100 steps", limits);
  limits = {};
  limits.output_bytes = 10;
  ExpectRefused("12345\n678901", "longer than 10 bytes", limits);
  limits = {};
  limits.source_bytes = 3;
  EXPECT_EQ(Outcome("1234", Json::object(), limits),
            "hostile: the template has 4 bytes, expected at most 3");
}

TEST(JinjaLimits, AnErrorNamesTheLineAndIsOneLine) {
  EXPECT_EQ(Outcome("a\n{% if x %}\n{% endif %}{{ x.y }}"), "hostile: line 3: 'x' is undefined");
  EXPECT_EQ(Outcome("a\n\n{{ raise_exception('two\nlines') }}"), "hostile: line 3: two\\x0alines");
  EXPECT_EQ(Outcome("\n{{ 'a' }"), "hostile: line 2: unexpected '}'");
}

TEST(JinjaLimits, AnAgentsPromptTakesMilliseconds) {
  const Json tool = {{"type", "function"},
                     {"function", {{"name", "f"}, {"description", Times("word ", 60)}}}};
  Json variables = {{"messages", Json::array()}, {"tools", Json::array()}};
  for (int i = 0; i < 40; ++i) variables["tools"].push_back(tool);
  for (int i = 0; i < 200; ++i)
    variables["messages"].push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", Times("word ", 60)}});
  JinjaVariables in;
  for (const auto& [name, value] : variables.items()) in.data.emplace_back(name, &value);
  const auto jinja = JinjaTemplate::Parse(
      "{% for t in tools %}{{ t|tojson }}\n{% endfor %}{% for m in messages %}<|{{ m.role }}|>"
      "{{ m.content|trim }}{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}"
      "{% endif %}\n{% endfor %}",
      "agent");
  const auto cpu_ms = [] {  // of this thread: what others do with the machine does not count
    timespec at{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return static_cast<double>(at.tv_sec) * 1e3 + static_cast<double>(at.tv_nsec) * 1e-6;
  };
  const double begin_ms = cpu_ms();
  const auto pieces = jinja->Render(in);
  const double took_ms = cpu_ms() - begin_ms;
  EXPECT_GT(JoinPieces(pieces).size(), 72'000u);
  std::printf("an agent's prompt of %zu bytes: %.2f ms\n", JoinPieces(pieces).size(), took_ms);
  EXPECT_LT(took_ms, 2000) << "far above 20 ms, also with sanitizers";
}

}  // namespace
}  // namespace larder::model::jinja
