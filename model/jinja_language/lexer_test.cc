#include "model/jinja_language/lexer.h"

#include <gtest/gtest.h>

#include "model/jinja_language/ast.h"

namespace larder::model::inline jinja_language {
namespace {

std::string Texts(std::string_view source) {
  std::string out;
  for (const Token& token : Lex(source)) {
    if (token.kind == TokenKind::kVariableBegin || token.kind == TokenKind::kBlockBegin) out += "[";
    out += token.text;
    if (token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd) out += "]";
    if (token.kind != TokenKind::kEnd) out += " ";
  }
  return out;
}

TEST(Lexer, BlocksTakeTheirLineAndCommentsVanish) {
  EXPECT_EQ(Texts("a{# b #}c"), "a c ");
  EXPECT_EQ(Texts("x\n  {% if y %}\nz"), "x\n [ if y ] z ");  // lstrip_blocks, trim_blocks
  EXPECT_EQ(Texts("x  {{- 'it\\'s' -}}  z"), "x [ it's ] z ");
}

TEST(Lexer, KindsAndLines) {
  const std::vector<Token> tokens = Lex("a\n{{ b.c + 1 >= 2.5 }}");
  ASSERT_EQ(tokens.size(), 11u);
  const TokenKind kinds[] = {
      TokenKind::kData,  TokenKind::kVariableBegin, TokenKind::kName,    TokenKind::kOperator,
      TokenKind::kName,  TokenKind::kOperator,      TokenKind::kInteger, TokenKind::kOperator,
      TokenKind::kFloat, TokenKind::kVariableEnd,   TokenKind::kEnd};
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i].kind, kinds[i]) << i;
  EXPECT_EQ(tokens[2].line, 2u);
}

TEST(Parser, WrongTemplatesNameTheirLine) {
  static const Builtin none = nullptr;
  const Builtins builtins{
      [](std::string_view) { return none; }, [](std::string_view) { return none; },
      [](std::string_view) { return none; }, [](Kind, std::string_view) { return none; }};
  for (const char* wrong : {"a\n{% if %}", "a\n{{ 'x }}", "a\n{% endfor %}", "a\n{{ (1 }}",
                            "a\n{% for x in %}{% endfor %}"}) {
    ParsedTemplate parsed;
    try {
      ParseTemplate(wrong, builtins, parsed);
      ADD_FAILURE() << wrong;
    } catch (const SyntaxError& error) {
      EXPECT_EQ(error.line, 2u) << wrong << ": " << error.text;
    }
  }
}

}  // namespace
}  // namespace larder::model::jinja_language
