// Strings of a schema: lengths, pattern, format.
#pragma once

#include <string>
#include <vector>

#include "serving/grammar/schema_merge.h"
#include "serving/grammar/syntax.h"

namespace larder::serving::inline grammar {

// One character of a JSON string, escaped or not.
ExprId AddStringChar(Syntax&);
// A string, with its quotes. Throws Error with the path.
ExprId AddString(Syntax&, const Json& schema, const std::string& path);
// The longest name that AddOtherKey takes.
inline constexpr size_t kMostOtherKeyBytes = 512;
// A key, with its quotes, that is none of these names. It has no escape before the place where it
// differs from all of them.
ExprId AddOtherKey(Syntax&, std::vector<std::string> names);
// The count that a keyword gives. Throws Error if the value is not a count.
uint32_t ReadCount(const Json& schema, const char* keyword, uint32_t value,
                   const std::string& path);

}  // namespace larder::serving::grammar
