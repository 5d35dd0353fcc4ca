#include "serving/answer/tool_grammar.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "serving/answer/answer_testing.h"
#include "serving/constraint/constraint_testing.h"
#include "serving/grammar/grammar.h"

namespace larder::serving::inline answer {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ToolChoice::Kind;

Json GrammarTools() {
  return Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "unit": {"enum": ["C", "F"]}, "days": {"type": "integer"},
      "o": {"type": "object"}}, "required": ["city", "days"]}}},
    {"type": "function", "function": {"name": "say-\"hi\"", "parameters": {"type": "object", "properties": {
      "text": {"type": "string"}, "loud": {"type": "boolean"}}}}},
    {"type": "function", "function": {"name": "now"}}])");
}

// Writes random texts of a grammar: the part of GBNF that MakeToolGrammar uses.
class Derivations {
 public:
  Derivations(const std::string& gbnf, unsigned seed) : random_(seed) {
    size_t at = 0;
    while (at < gbnf.size()) {
      const size_t end = gbnf.find('\n', at);
      const std::string line = gbnf.substr(at, end - at);
      const size_t is = line.find(" ::= ");
      EXPECT_NE(is, std::string::npos) << line;
      rules_[line.substr(0, is)] = line.substr(is + 5);
      at = end + 1;
    }
  }

  std::string Text() { return Of("root", 0); }

 private:
  using Alternatives = std::vector<std::string>;  // texts of one choice each

  std::string Of(const std::string& rule, int depth) {
    const auto at = rules_.find(rule);
    EXPECT_NE(at, rules_.end()) << rule;
    if (at == rules_.end()) return {};
    size_t i = 0;
    return Choice(at->second, i, depth + 1, true);
  }

  // Reads alternatives up to the end or a closing parenthesis; writes one of them.
  std::string Choice(const std::string& text, size_t& i, int depth, bool write) {
    std::vector<size_t> begins = {i};
    size_t end = i;
    Sequence(text, end, depth, false);
    while (end < text.size() && text[end] == '|') {
      begins.push_back(++end);
      Sequence(text, end, depth, false);
    }
    i = end;
    if (!write) return {};
    size_t begin = begins[depth > 12 ? 0 : random_() % begins.size()];
    return Sequence(text, begin, depth, true);
  }

  std::string Sequence(const std::string& text, size_t& i, int depth, bool write) {
    std::string all;
    while (i < text.size() && text[i] != '|' && text[i] != ')') {
      if (text[i] == ' ') {
        ++i;
        continue;
      }
      const size_t begin = i;
      Atom(text, i, depth, false);
      size_t least = 1, most = 1;
      if (i < text.size() && std::string_view("*+?").find(text[i]) != std::string_view::npos) {
        least = text[i] == '+' ? 1 : 0;
        most = text[i] == '?' ? 1 : 3;
        ++i;
      }
      for (size_t n = write ? least + random_() % (most - least + 1) : 0; n > 0; --n) {
        size_t again = begin;
        all += Atom(text, again, depth, true);
      }
    }
    return all;
  }

  std::string Atom(const std::string& text, size_t& i, int depth, bool write) {
    if (text[i] == '"') return Literal(text, ++i, '"');
    if (text[i] == '(') {
      std::string inner = Choice(text, ++i, depth + 1, write);
      EXPECT_LT(i, text.size());
      ++i;
      return inner;
    }
    if (text[i] == '[') {
      ++i;
      const bool negated = text[i] == '^';
      if (negated) ++i;
      const std::string members = Literal(text, i, ']');
      if (!negated) return members.substr(0, 1);
      std::string others;
      for (const char c : std::string_view("ab<>/{}\"[] |\n")) {
        if (members.find(c) == std::string::npos) others += c;
      }
      return {others[random_() % others.size()]};
    }
    if (text[i] == '.') {
      ++i;
      return std::string(1, "ab<{}[]\"`:, \n"[random_() % 13]);
    }
    if (text.compare(i, 7, "%token ") == 0) return Literal(text, i += 8, '"');
    if (text.compare(i, 6, "%json ") == 0) {
      i += 6;
      JsonScanner scanner;
      const size_t begin = i;
      while (scanner.Next(text[i]) == Verdict::kMore) ++i;
      ++i;
      return write ? Instance(Json::parse(text.substr(begin, i - begin))).dump() : "";
    }
    const size_t begin = i;
    while (i < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '-'))
      ++i;
    EXPECT_GT(i, begin) << text.substr(begin);
    if (i == begin) i = text.size();
    return write ? Of(text.substr(begin, i - begin), depth) : "";
  }

  static std::string Literal(const std::string& text, size_t& i, char end) {
    std::string literal;
    for (; i < text.size() && text[i] != end; ++i) {
      if (text[i] == '\\') {
        ++i;
        literal += text[i] == 'n' ? '\n' : text[i];
      } else {
        literal += text[i];
      }
    }
    ++i;
    return literal;
  }

  Json Instance(const Json& schema) {
    const std::string type = schema.value("type", "string");
    if (schema.contains("enum")) return schema["enum"][0];
    if (type == "integer") return random_() % 100;
    if (type == "boolean") return random_() % 2 == 0;
    if (type == "string") return "a \"}{\n</parameter> ü";
    Json object = Json::object();
    if (schema.contains("properties")) {
      for (const auto& [key, property] : schema["properties"].items())
        object[key] = Instance(property);
    }
    return object;
  }

  std::map<std::string, std::string> rules_;
  std::minstd_rand random_;
};

// Whatever a grammar lets through is read as calls of the tools with arguments that are JSON, and
// nothing else.
void CheckDerivations(AnswerFormat format, const ToolChoice& choice,
                      const ToolGrammarOptions& options) {
  const ToolGrammar grammar = MakeToolGrammar(format, GrammarTools(), choice, options);
  SCOPED_TRACE(grammar.gbnf);
  for (unsigned seed = 0; seed < 60; ++seed) {
    Derivations derivations(grammar.gbnf, seed + 1);
    std::string text = derivations.Text();
    if (!grammar.triggers.empty()) text = grammar.triggers[0] + text;
    const AnswerParserOptions parse{
        .format = format,
        .starts_in_reasoning =
            options.starts_in_reasoning || (options.may_think && format == AnswerFormat::kApriel),
        .tools = GrammarTools()};
    const ParsedAnswer answer = ParseAnswer(parse, text);
    ASSERT_EQ(answer.content, "") << text;
    ASSERT_FALSE(answer.calls.empty()) << text;
    ASSERT_TRUE(options.parallel || answer.calls.size() == 1) << text;
    for (const ParsedCall& call : answer.calls) {
      const bool known =
          call.name == "get_weather" || call.name == "say-\"hi\"" || call.name == "now";
      ASSERT_TRUE(known) << text;
      ASSERT_TRUE(choice.kind != Kind::kNamed || call.name == choice.name) << text;
      const Json arguments = Json::parse(call.arguments, nullptr, false);
      ASSERT_TRUE(arguments.is_object()) << text << " ## " << call.arguments;
      if (call.name != "get_weather") continue;
      ASSERT_TRUE(arguments.at("city").is_string()) << text;
      ASSERT_TRUE(arguments.at("days").is_number_integer()) << text;
    }
  }
}

TEST(ToolGrammar, WhatItPermitsIsReadAsCalls) {
  for (const std::string_view name : AnswerFormatNames()) {
    SCOPED_TRACE(name);
    const AnswerFormat format = *AnswerFormatByName(name);
    // A name with quotes cannot be written in every form.
    const bool any_name =
        format != AnswerFormat::kFunctionary31 && format != AnswerFormat::kFunctionary32;
    const ToolChoice named{Kind::kNamed, "get_weather"};
    CheckDerivations(format, named, {});
    CheckDerivations(format, named, {.parallel = false});
    CheckDerivations(format, named, {.may_think = true});
    CheckDerivations(format, named, {.starts_in_reasoning = true});
    if (any_name) CheckDerivations(format, {Kind::kRequired, ""}, {});
    const bool marked = !MakeToolGrammar(format, GrammarTools(), {}).triggers.empty();
    EXPECT_EQ(marked, format != AnswerFormat::kGeneric && format != AnswerFormat::kLlama3);
    if (marked && any_name) CheckDerivations(format, {}, {});
  }
}

// Where no marker begins a call: of all texts that are read as a call the grammar has those whose
// arguments fit, and any text that is not read as a call, except JSON with a call's key first.
TEST(ToolGrammar, AStrictCallWithoutAMarkerFitsItsToolAndOtherTextIsFree) {
  const std::string good = R"({"name": "get_weather", "arguments": {"city":"Bern","days":2}})";
  const std::string bad = R"({"name": "get_weather", "arguments": {"city":7}})";
  const std::string call = R"({"tool_call": )" + good + "}";
  const std::string wrong = R"({"tool_call": )" + bad + "}";
  const std::string llama = R"({"name": "get_weather", "parameters": {"city":"Bern","days":2}})";
  const std::string llama_wrong = R"({"name": "get_weather", "parameters": {"days":2}})";
  const std::vector<std::string> free = {
      "",
      "Hello {\"name\": 1}",
      "{}",
      "{",
      "{ \"answer\": 42 }",
      R"({"names": 1})",
      R"({"nam)",
      R"([1, {"name": "x"}])",
      R"([{"answer": 1}])",
      "```\ncode\n```",
      "```python\nx = {}\n```",
      "```json\n{\"answer\": 1}\n```",
      "```json\n[3]\n```",
      "<b>bold</b>",
      " \n yes",
      "Ünïcode",
      "<think>hm</think>\nHello",
  };
  for (const AnswerFormat format : {AnswerFormat::kGeneric, AnswerFormat::kLlama3}) {
    const bool generic = format == AnswerFormat::kGeneric;
    const std::string& own = generic ? call : llama;
    for (const bool starts_in_reasoning : {false, true}) {
      const ToolGrammar made =
          MakeToolGrammar(format, GrammarTools(), {}, {.starts_in_reasoning = starts_in_reasoning});
      SCOPED_TRACE(made.gbnf);
      ASSERT_EQ(made.triggers.empty(), !starts_in_reasoning);
      const std::shared_ptr<const Grammar> grammar = Grammar::FromGbnf(made.gbnf);
      const auto read = [&](const std::string& text) {
        return ParseAnswer({.format = format, .tools = GrammarTools()}, text);
      };
      for (const std::string& text : free) {
        if (starts_in_reasoning && text.starts_with("<think>")) continue;
        EXPECT_TRUE(Accepts(grammar, text)) << text;
        EXPECT_TRUE(read(text).calls.empty()) << text;
      }
      std::vector<std::string> calls = {own, "\n" + own, "```json\n" + own + "\n```"};
      if (!starts_in_reasoning) calls.push_back("\n<think>hm</think>\n" + own);
      for (const std::string& text : calls) {
        EXPECT_TRUE(Accepts(grammar, text)) << text;
        if (generic || !text.starts_with("```")) {
          EXPECT_EQ(read(text).calls.size(), 1u) << text;
        }
      }
      // Read as calls, and not in the form in which they are constrained, or with wrong arguments.
      const std::string& not_own = generic ? wrong : llama_wrong;
      size_t refused = 0;
      for (const std::string& text : std::vector<std::string>{
               not_own, " " + not_own, good, bad, R"({"tool_calls": [)" + bad + "]}",
               R"({"type": "function", "function": )" + bad + "}",
               R"({"id": "1", "name": "now", "arguments": {}})", R"({ "tool_call": )" + bad + "}",
               R"({"\u006eame": "get_weather", "arguments": {}})",
               R"({"n\u0061me": "now", "arguments": {}})",
               R"({"arguments": {}, "name": "get_weather"})", "<think></think>" + bad,
               "```json\n" + bad + "\n```", "```json\n[" + bad + "]\n```"}) {
        EXPECT_EQ(Accepts(grammar, text), read(text).calls.empty()) << text;
        if (!Accepts(grammar, text)) ++refused;
      }
      EXPECT_EQ(refused, generic ? 14u : 12u);
    }
  }
}

TEST(ToolGrammar, WhateverAStrictGrammarWithoutAMarkerPermitsCallsRightly) {
  for (const AnswerFormat format : {AnswerFormat::kGeneric, AnswerFormat::kLlama3}) {
    const ToolGrammar grammar = MakeToolGrammar(format, GrammarTools(), {});
    SCOPED_TRACE(grammar.gbnf);
    size_t calls = 0, texts = 0;
    for (unsigned seed = 0; seed < 600; ++seed) {
      const std::string text = Derivations(grammar.gbnf, seed + 1).Text();
      const ParsedAnswer answer = ParseAnswer({.format = format, .tools = GrammarTools()}, text);
      ASSERT_LE(answer.calls.size(), 1u) << text;
      ++(answer.calls.empty() ? texts : calls);
      if (answer.calls.empty() || answer.calls[0].name != "get_weather") continue;
      const Json arguments = Json::parse(answer.calls[0].arguments, nullptr, false);
      ASSERT_TRUE(arguments.is_object() && arguments.contains("city") && arguments.contains("days"))
          << text;
    }
    EXPECT_GT(calls, 50u);
    EXPECT_GT(texts, 200u);
  }
}

TEST(ToolGrammar, TextOfOneFormat) {
  const Json tools = Json::parse(
      R"([{"type": "function", "function": {"name": "a\"b", "parameters": {"type": "object",
    "properties": {"x": {"type": "string", "pattern": "\"\\d"}}}}}])");
  const std::string call = R"(call-0 ::= "\n{\"name\": \"a\\\"b\", \"arguments\": " %json )" +
                           tools[0]["function"]["parameters"].dump() +
                           R"( "}\n" %token "</tool_call>")" + "\ncall ::= call-0\n";
  const ToolGrammar lazy = MakeToolGrammar(AnswerFormat::kHermes, tools, {});
  EXPECT_EQ(lazy.gbnf, R"(root ::= call ("\n" %token "<tool_call>" call)*)"
                       "\n" +
                           call);
  EXPECT_EQ(lazy.triggers, std::vector<std::string>{"<tool_call>"});
  const ToolGrammar required =
      MakeToolGrammar(AnswerFormat::kHermes, tools, {Kind::kRequired, ""}, {.parallel = false});
  EXPECT_EQ(required.gbnf, R"(root ::= %token "<tool_call>" call)"
                           "\n" +
                               call);
  EXPECT_TRUE(required.triggers.empty());
  const ToolGrammar thinks = MakeToolGrammar(AnswerFormat::kHermes, tools, {Kind::kRequired, ""},
                                             {.starts_in_reasoning = true});
  EXPECT_EQ(thinks.triggers, std::vector<std::string>{"</think>"});
}

TEST(ToolGrammar, WrongToolsAreNamed) {
  const auto message = [](const Json& tools, const ToolChoice& choice) {
    try {
      MakeToolGrammar(AnswerFormat::kHermes, tools, choice);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(GrammarTools(), {Kind::kNamed, "other"}),
            "tool_choice: no tool is named \"other\"");
  EXPECT_EQ(message(Json::array(), {Kind::kRequired, ""}),
            "tools: expected at least one function with a name");
}

TEST(ToolInstructions, NameTheToolsAndTheForm) {
  const std::string text = MakeToolInstructions(AnswerFormat::kGeneric, GrammarTools());
  EXPECT_NE(text.find("\"get_weather\""), std::string::npos);
  EXPECT_NE(text.find("{\"tool_call\": {\"name\": \"NAME\", \"arguments\": {...}}}"),
            std::string::npos);
  const std::string deep_seek = MakeToolInstructions(AnswerFormat::kDeepSeekV31, GrammarTools());
  EXPECT_NE(deep_seek.find("<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}"), std::string::npos);
}

// A model that is told a form, and whose earlier calls are shown in it, is read in it.
TEST(ToolInstructions, TheToldFormIsTheOneThatIsParsed) {
  const Json tools = GrammarTools();
  const std::string arguments = R"({"city": "Bern", "days": 2})";
  for (const std::string_view name : AnswerFormatNames()) {
    SCOPED_TRACE(name);
    const AnswerFormat format = ToldFormat(*AnswerFormatByName(name));
    const ParsedAnswer answer = ParseAnswer({.format = format, .tools = tools},
                                            MakeCallText(format, "get_weather", arguments));
    EXPECT_EQ(answer.content, "");
    ASSERT_EQ(answer.calls.size(), 1u);
    EXPECT_EQ(answer.calls[0].name, "get_weather");
    EXPECT_EQ(Json::parse(answer.calls[0].arguments), Json::parse(arguments));
  }
}

}  // namespace
}  // namespace larder::serving::answer
