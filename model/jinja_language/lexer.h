// Cuts a template's source into tokens, with the white space around tags removed as Jinja2 does it
// with trim_blocks and lstrip_blocks (so transformers sets them) and for "{%-", "-%}", "{%+",
// "+%}".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace larder::model::inline jinja_language {

enum class TokenKind : uint8_t {
  kData,           // text outside of tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,   // text: unescaped
  kInteger,  // text: as it is written
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;
};

// Why a template is wrong, with the line of its source.
struct SyntaxError {
  uint32_t line;
  std::string text;
};

std::vector<Token> Lex(std::string_view source);  // ends with kEnd; throws SyntaxError

}  // namespace larder::model::jinja_language
