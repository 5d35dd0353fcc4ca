#include "serving/grammar/gbnf.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "serving/constraint/constraint_testing.h"
#include "serving/grammar/grammar.h"

namespace larder::serving::inline constraint {
namespace {

struct GbnfCase {
  const char* gbnf;
  std::vector<std::string> valid, invalid;
};

TEST(Gbnf, Matches) {
  const std::vector<GbnfCase> cases = {
      {R"(root ::= "yes" | "no")", {"yes", "no"}, {"", "y", "yesno", "maybe"}},
      {R"(root ::= "a\x41\u00e9\U0001F600\n\t\\\"\[\]")", {"aAé😀\n\t\\\"[]"}, {"aA"}},
      {R"(root ::= "\xe9")", {"\xe9"}, {"é"}},
      {R"(root ::= [a-cX] [^a-c])", {"ad", "Xé", "b😀"}, {"aa", "dd", "a", "a\xff", "a\xc3"}},
      {R"(root ::= [a-])", {"a", "-"}, {"b"}},
      {R"(root ::= [\]\\^-])", {"]", "\\", "^", "-"}, {"[", "a"}},
      {R"(root ::= [\u4e00-\u9fff]+)", {"日本", "一"}, {"a", "", "日a"}},
      {R"(root ::= .)", {"a", "\n", "é", "😀"}, {"", "ab", "\xf8", "\xed\xa0\x80"}},
      {R"(root ::= "a"* "b"+ "c"?)", {"b", "aab", "bbc"}, {"a", "c", "abcc"}},
      {R"(root ::= "a"{2} "b"{1,} "c"{0,2} "d"{,})", {}, {}},
      {R"(root ::= "a"{2} "b"{1,} "c"{0,2})", {"aab", "aabbcc"}, {"ab", "aa", "aabccc"}},
      {R"(root ::= [a-z]{3,100})", {"abc", std::string(100, 'a')}, {"ab", std::string(101, 'a')}},
      {R"(root ::= ([a-z]{2} " "){2,60})", {"ab cd ", "ab cd ef "}, {"ab ", "ab c ", "abc d "}},
      {R"(root ::= ("a" | "b" "c")* "d")", {"d", "abcd", "aad"}, {"bd", "abd"}},
      {"# comment\nroot ::= greeting # more\n  \"!\"\ngreeting ::=\n \"hi\" |\n \"hello\"\n",
       {},
       {}},
      {"# comment\nroot ::= greeting \"!\" # more\n\ngreeting ::=\n \"hi\" |\n \"hello\"\n",
       {"hi!", "hello!"},
       {"hi"}},
      {"root ::= e\ne ::= \"(\" e \")\" | \"x\"", {"x", "(x)", "((((x))))"}, {"(x", "x)", "()"}},
      {"root ::= \"[\" (v (\",\" v)*)? \"]\"\nv ::= [0-9] | root",
       {"[]", "[1,[2,[3]],4]"},
       {"[1,]", "[[1]", "1"}},
      {"root ::= \"a\" root | \"b\"", {"b", "aaaaab"}, {"a", "ba"}},
      {R"(root ::= ("a"?){3,5} "b")", {"b", "aaaaab"}, {"aaaaaab"}},
      {R"(root ::= ("a"? "b"?){0,1000} "c")", {"c", "abababc", "bbbaaac"}, {"ab", "cc"}},
      {"root ::= x{2,90}\nx ::= \"a\" x | \"\" | \"b\"", {"", "ab", "aab", "abab"}, {"c"}},
      {R"(root ::= ("ab" | "a" | "b"){3} )", {"aba", "bbb", "ababab"}, {"ab"}},
      {R"(root ::= ((("a"{100}){100}){100}){100} | "ok")", {"ok"}, {"a"}},
      {R"(root ::= "<call>" %json {"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]} "</call>")",
       {"<call>{\"n\":1}</call>", "<call>{\"n\": -20}</call>"},
       {"<call>{}</call>", "<call>{\"n\":1.5}</call>", "{\"n\":1}"}},
      {R"(root ::= "<" %regex "[a-c]+\\d|\"x\"" ">")",
       {"<ab7>", "<\"x\">"},
       {"<ab>", "<7>", "ab7", "<ab7"}},
      // The rules of a grammar that is an atom are its own.
      {R"(root ::= x %gbnf "root ::= x \"!\" | \"(\" root \")\"\nx ::= \"b\"" x
x ::= "a")",
       {"ab!a", "a(b!)a", "a((b!))a"},
       {"aa!a", "bb!b", "ab!", "a(b!a"}},
      {R"(root ::= %gbnf "root ::= %gbnf \"root ::= \\\"a\\\"\"" "b")", {"ab"}, {"a", "b"}},
  };
  for (const GbnfCase& one : cases) {
    if (one.valid.empty() && one.invalid.empty()) continue;
    const auto grammar = Grammar::FromGbnf(one.gbnf);
    for (const std::string& text : one.valid) {
      EXPECT_TRUE(Accepts(grammar, text)) << one.gbnf << " with " << text;
      EXPECT_TRUE(AcceptsTokens(grammar, text, true)) << one.gbnf << " with " << text;
      EXPECT_TRUE(AcceptsTokens(grammar, text, false)) << one.gbnf << " with " << text;
    }
    for (const std::string& text : one.invalid) {
      EXPECT_FALSE(Accepts(grammar, text)) << one.gbnf << " with " << text;
      EXPECT_FALSE(AcceptsTokens(grammar, text, true)) << one.gbnf << " with " << text;
    }
  }
}

TEST(Gbnf, NamesWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "grammar: it has no rule 'root': expected one; a text must match it"},
      {"a ::= \"b\"", "grammar: it has no rule 'root': expected one; a text must match it"},
      {"root = \"b\"", "grammar: 1:6: expected ::= after the name, not '='"},
      {"root ::= \"b\n", "grammar: 2:1: the text ends in a literal or class"},
      {"root ::= x\n", "grammar: 1:10: rule 'x' is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"\n", "grammar: 2:1: rule 'root' is defined twice"},
      {"root ::= (\"a\"", "grammar: 1:14: expected ) or more of the group, not the end"},
      {"root ::= \"a\"{2", "grammar: 1:15: expected } after the numbers, not the end"},
      {"root ::= \"a\"{3,2}",
       "grammar: 1:18: {3,2}: expected the second number to be at least the first"},
      {"root ::= \"a\"{9999999}", "grammar: 1:21: a repetition of more than 1000000"},
      {"root ::= \"\\q\"",
       "grammar: 1:11: unknown escape: expected \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH or "
       "\\UHHHHHHHH"},
      {"root ::= \"\\x4\"", "grammar: 1:14: expected 2 hexadecimal digits after \\x"},
      {"root ::= [z-a]", "grammar: 1:14: the class's range ends before it begins"},
      {"root ::= a\na ::= b?  a \"x\"\nb ::= \"b\"",
       "grammar: rule 'a' can begin with itself (left recursion): expected it to begin with "
       "something else"},
      {"root ::= \"a\" root", "grammar: it matches no text"},
      {"root ::= %json {\"type\":\"thing\"}",
       "grammar: 1:16: %json: schema at /: type: 'thing' is not a type: expected string, number, "
       "integer, boolean, null, array or object"},
      {"root ::= %json {\"a\"", "grammar: 1:16: the schema after %json does not end"},
      {"root ::= %other", "grammar: 1:10: expected %json, %regex, %gbnf or %token"},
      {"root ::= %regex (", "grammar: 1:17: expected a literal after %regex, not '('"},
      {"root ::= \"a\" %gbnf \"root ::= b\"",
       "grammar: 1:14: %gbnf: grammar: 1:10: rule 'b' is not defined"},
      {"root ::= \"a\" }", "grammar: 1:14: expected the end of the line, not '}'"},
  };
  for (const auto& [gbnf, message] : cases) {
    try {
      Grammar::FromGbnf(gbnf);
      ADD_FAILURE() << gbnf;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message);
    }
  }
}

TEST(Gbnf, GrammarsInGrammarsHaveALimit) {
  std::string gbnf = "root ::= \"a\"";
  for (int i = 0; i < 3; ++i) gbnf = "root ::= " + GbnfOfGrammar(gbnf);
  EXPECT_TRUE(Accepts(Grammar::FromGbnf(gbnf), "a"));
  try {
    Grammar::FromGbnf("root ::= " + GbnfOfGrammar(gbnf));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nested more than 4 deep"), std::string::npos)
        << error.what();
  }
}

TEST(Gbnf, HostileTextsCostLittle) {
  const auto refused = [](const std::string& gbnf) {
    try {
      Grammar::FromGbnf(gbnf);
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_TRUE(refused("root ::= " + std::string(100'000, '(')));
  EXPECT_TRUE(refused("root ::= \"a\"" + std::string(100'000, '+')));  // each is nested in the next
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 20'000; ++i) chain += fmt::format("r{} ::= r{}?\n", i, i + 1);
  EXPECT_FALSE(refused(chain + "r20000 ::= \"a\"\n"));
  EXPECT_FALSE(refused("root ::= r0{2,100}\n" + chain.substr(12) + "r20000 ::= \"a\"\n"));
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 40; ++i) doubling += fmt::format("r{} ::= r{} r{}\n", i, i + 1, i + 1);
  EXPECT_FALSE(refused(doubling + "r40 ::= \"a\"\n"));  // 2^40 letters, 40 rules
}

TEST(Regex, Matches) {
  const auto grammar = Grammar::FromRegex("(?:[a-z]+\\d{2,3}|\\w\\.x?)");
  for (const char* text : {"ab12", "z999", "_.", "A.x"})
    EXPECT_TRUE(Accepts(grammar, text)) << text;
  for (const char* text : {"ab1", "ab1234", "", "A.xx"})
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  for (const std::string pattern : {"(?=a)b", "a\\b", "(a)\\1", "[a", "[a-", "[\\", "(a", "a)",
                                    "*a", "a{3,2}", "a**", "a{2}{3}", "\\p{L}"}) {
    // On the heap without a terminator: ASan sees a read behind the end.
    const std::vector<char> text(pattern.begin(), pattern.end());
    EXPECT_THROW(Grammar::FromRegex({text.data(), text.size()}), Error) << pattern;
  }
}

// Repetitions of what may be empty, nested: each level is made once. 2^30 nodes otherwise.
TEST(Regex, NestedRepetitions) {
  const auto nested = [](int levels, std::string_view open, std::string_view close) {
    std::string pattern = "a";
    for (int i = 0; i < levels; ++i) pattern = fmt::format("{}{}{}", open, pattern, close);
    return Grammar::FromRegex(pattern);
  };
  for (const auto& grammar :
       {nested(30, "(?:", "*)"), nested(30, "(?:b?", ")*"), nested(30, "(?:", "b?)*")}) {
    for (const char* text : {"", "a", "aa"}) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const char* text : {"c", "ac", "aca"}) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
  for (const char* text : {"babba", "abb", "b"}) {
    EXPECT_FALSE(Accepts(nested(1, "(?:b?", ")*"), text)) << text;
    EXPECT_TRUE(Accepts(nested(8, "(?:b?", ")*"), text)) << text;
  }
  EXPECT_FALSE(Accepts(nested(30, "(?:", "{0,3})"), "ac"));
}

}  // namespace
}  // namespace larder::serving::constraint
