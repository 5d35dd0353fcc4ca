// Test support: renders templates with python3-jinja2, set up as transformers does it, in one
// process for all cases. Included by tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/temporary_folder_testing.h"

namespace larder::model::inline jinja {

struct OracleCase {
  std::string source;
  nlohmann::ordered_json variables;
};

// A text, or nothing where the oracle raises; `error` is what it raises then.
struct OracleResult {
  std::optional<std::string> text;
  std::string error;
};

constexpr int64_t kOracleNow = 1'741'000'000;  // strftime_now's time: 3 March 2025

inline bool HaveOracle() {
  static const bool have = std::system("python3 -c 'import jinja2' 2>/dev/null") == 0;
  return have;
}

// Lines of {"source", "variables"} become lines of {"text"} or {"error"}.
constexpr char kOracleScript[] = R"PY(
import datetime, json, sys
import jinja2, jinja2.ext, jinja2.sandbox

class Generation(jinja2.ext.Extension):
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)
    def _render(self, caller):
        return caller()

def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)

def environment(kind):
    env = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    now = datetime.datetime.fromtimestamp(NOW)
    env.globals["strftime_now"] = lambda format: now.strftime(format)
    return env

strict = environment(jinja2.sandbox.ImmutableSandboxedEnvironment)
# Larder lets a template change its own values; transformers refuses that.
mutable = environment(jinja2.sandbox.SandboxedEnvironment)
parsed = {}

def render(env, source, variables):
    key = (id(env), source)
    if key not in parsed:
        try:
            parsed[key] = env.from_string(source)
        except Exception as error:
            parsed[key] = error
    if isinstance(parsed[key], Exception):
        raise parsed[key]
    return parsed[key].render(**json.loads(variables))

for line in open(sys.argv[1], encoding="utf-8"):
    case = json.loads(line)
    variables = json.dumps(case["variables"])
    try:
        try:
            out = {"text": render(strict, case["source"], variables)}
        except jinja2.exceptions.SecurityError:
            out = {"text": render(mutable, case["source"], variables)}
    except Exception as error:
        out = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(out))
)PY";

inline std::vector<OracleResult> RunOracle(const std::vector<OracleCase>& cases) {
  const TemporaryFolder folder;
  const std::string base = folder / "oracle";
  std::string script = kOracleScript;
  script.replace(script.find("NOW"), 3, std::to_string(kOracleNow));
  std::ofstream(base + ".py") << script;
  {
    std::ofstream in(base + ".in");
    for (const OracleCase& one : cases)
      in << nlohmann::ordered_json{{"source", one.source}, {"variables", one.variables}}.dump()
         << '\n';
  }
  std::vector<OracleResult> results;
  const std::string command = "python3 '" + base + ".py' '" + base + ".in' > '" + base + ".out'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ifstream out(base + ".out");
  for (std::string line; std::getline(out, line);) {
    const auto json = nlohmann::json::parse(line);
    OracleResult result;
    if (json.contains("text")) {
      result.text = json["text"].get<std::string>();
    } else {
      result.error = json["error"].get<std::string>();
    }
    results.push_back(std::move(result));
  }
  EXPECT_EQ(results.size(), cases.size());
  results.resize(cases.size());
  return results;
}

}  // namespace larder::model::jinja
