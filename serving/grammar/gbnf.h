// GBNF, llama.cpp's notation of grammars, with atoms of our own: %json {...} matches a JSON text of
// that schema, %regex "..." a text that the regular expression matches as a whole, %gbnf "..." a
// text of that grammar, which has its own rules, and %token "..." the special token of that text,
// or the text where the vocabulary has no such token. Lines of `name ::= expression`, where an
// expression has literals
// "..." with \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH, classes [a-z] and [^a-z], . for any
// character, names of rules, (groups), | and the repetitions * + ? {m} {m,} {m,n}; # begins a
// comment. The text comes from a client: anything may be in it.
#pragma once

#include <string>
#include <string_view>

#include "serving/grammar/syntax.h"

namespace larder::serving::inline grammar {

inline constexpr size_t kMostGbnfBytes = 1u << 20;

// Throws Error with line:column.
Syntax ReadGbnf(std::string_view text);
// The literal that matches this text.
std::string GbnfLiteral(std::string_view text);
// The same, as %token.
std::string GbnfToken(std::string_view text);
// A text of this grammar, and one that matches this regular expression.
std::string GbnfOfGrammar(std::string_view gbnf);
std::string GbnfOfRegex(std::string_view pattern);

}  // namespace larder::serving::grammar
