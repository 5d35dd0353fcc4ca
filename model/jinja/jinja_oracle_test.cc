// Small templates against python3-jinja2: equal to the byte, or both fail.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/jinja/jinja_oracle_testing.h"
#include "model/jinja/jinja_template.h"
#include "model/jinja/oracle_snippets_testing.h"

namespace larder::model::inline jinja {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::string> Render(const std::string& source, const Json& variables,
                                  std::string* error) {
  JinjaVariables in;
  in.now_s = kOracleNow;
  for (const auto& [name, value] : variables.items()) in.data.emplace_back(name, &value);
  try {
    return JoinPieces(JinjaTemplate::Parse(source, "test")->Render(in));
  } catch (const Error& e) {
    *error = e.what();
    return std::nullopt;
  }
}

TEST(JinjaOracle, SnippetsAreRenderedAsByJinja2) {
  if (!HaveOracle()) GTEST_SKIP() << "python3-jinja2 is not installed";
  const Json variables = Json::parse(kOracleVariables);
  std::vector<OracleCase> cases;
  for (const char* snippet : kOracleSnippets) cases.push_back({snippet, variables});
  const std::vector<OracleResult> expected = RunOracle(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::string error;
    const auto text = Render(cases[i].source, variables, &error);
    EXPECT_EQ(text.has_value(), expected[i].text.has_value())
        << cases[i].source << "\n  ours: " << text.value_or(error)
        << "\n  jinja2: " << expected[i].text.value_or(expected[i].error);
    if (text && expected[i].text) {
      EXPECT_EQ(*text, *expected[i].text) << cases[i].source;
    }
  }
}

}  // namespace
}  // namespace larder::model::jinja
