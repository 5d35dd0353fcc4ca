#include "serving/grammar/grammar.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/work.h"
#include "serving/grammar/gbnf.h"
#include "serving/grammar/json_schema.h"
#include "serving/grammar/regex.h"

namespace larder::serving::inline grammar {
namespace {

std::shared_ptr<const Grammar> Compiled(Syntax syntax, const char* what) {
  try {
    return std::make_shared<const Grammar>(CompileNfa(std::move(syntax)));
  } catch (const Error& error) {
    throw Error("{}: {}", what, error.what());
  }
}

Syntax WithRoot(Syntax syntax, ExprId expr) {
  syntax.root = syntax.AddRule("root");
  syntax.Define(syntax.root, expr);
  return syntax;
}

}  // namespace

std::shared_ptr<const Grammar> Grammar::FromGbnf(std::string_view text) {
  const OwnWork work;
  return Compiled(ReadGbnf(text), "grammar");
}

std::shared_ptr<const Grammar> Grammar::FromJsonSchema(const nlohmann::ordered_json& schema) {
  const OwnWork work;
  Syntax syntax;
  const ExprId expr = AddJsonSchema(syntax, schema, /*wants_text=*/true);
  return Compiled(WithRoot(std::move(syntax), expr), "schema");
}

std::shared_ptr<const Grammar> Grammar::FromRegex(std::string_view pattern) {
  const OwnWork work;
  Syntax syntax;
  ExprId expr = 0;
  try {
    expr = AddRegex(syntax, pattern, {.whole = true});
  } catch (const Error& error) {
    throw Error("regular expression: {}", error.what());
  }
  return Compiled(WithRoot(std::move(syntax), expr), "regular expression");
}

size_t Grammar::bytes() const {
  size_t literals = 0;
  for (const Nfa::Literal& literal : nfa_.literals)
    literals += sizeof literal + literal.text.size();
  return sizeof *this + nfa_.nodes.capacity() * sizeof(Nfa::Node) +
         nfa_.edges.capacity() * sizeof(Nfa::Edge) + nfa_.splits.capacity() * sizeof(NodeId) +
         nfa_.loops.capacity() * sizeof(Nfa::Loop) + literals;
}

}  // namespace larder::serving::grammar
