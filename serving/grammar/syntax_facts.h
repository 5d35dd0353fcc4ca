// Facts about a grammar's expressions: which match the empty text, which match any text at all,
// which rules begin with which. Each takes time linear in the grammar.
#pragma once

#include <vector>

#include "serving/grammar/syntax.h"

namespace larder::serving::inline grammar {

// For each expression, whether it can match the empty text.
std::vector<bool> FindNullable(const Syntax&);
// For each expression, whether there is a text that it matches.
std::vector<bool> FindProductive(const Syntax&);
// Throws an Error that names a rule which can begin with itself.
void RefuseLeftRecursion(const Syntax&, const std::vector<bool>& nullable);

}  // namespace larder::serving::grammar
