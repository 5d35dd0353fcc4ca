// Regular expressions of ECMAScript, as JSON Schema's `pattern` has them, as a grammar's
// expressions: classes, groups, |, quantifiers, escapes, and ^ $ at the ends. What is not regular
// (back references, look-around) or depends on more (\b, \p) is refused. The pattern is a client's.
#pragma once

#include <cstdint>
#include <string_view>

#include "serving/grammar/syntax.h"

namespace larder::serving::inline grammar {

enum class TextForm {
  kPlain,
  kJsonString,  // the characters of a JSON string: " \ and control characters are escaped
};

// The expression of one character of the set, in that form.
ExprId AddChar(Syntax&, const CodeSet&, TextForm);

struct RegexOptions {
  TextForm form = TextForm::kPlain;
  bool whole = false;  // the text is matched as if by ^(?:pattern)$
  // How many characters the text has. Throws Error if the pattern's form does not tell.
  uint32_t least = 0, most = kUnbounded;
};
// Throws Error: what, and at which character of the pattern.
ExprId AddRegex(Syntax&, std::string_view pattern, const RegexOptions&);

}  // namespace larder::serving::grammar
