#include "serving/grammar/grammar.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
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
  return Compiled(ReadGbnf(text), "grammar");
}

std::shared_ptr<const Grammar> Grammar::FromJsonSchema(const nlohmann::ordered_json& schema) {
  Syntax syntax;
  const ExprId expr = AddJsonSchema(syntax, schema, /*wants_text=*/true);
  return Compiled(WithRoot(std::move(syntax), expr), "schema");
}

std::shared_ptr<const Grammar> Grammar::FromRegex(std::string_view pattern) {
  Syntax syntax;
  ExprId expr = 0;
  try {
    expr = AddRegex(syntax, pattern, {.whole = true});
  } catch (const Error& error) {
    throw Error("regular expression: {}", error.what());
  }
  return Compiled(WithRoot(std::move(syntax), expr), "regular expression");
}

}  // namespace larder::serving::grammar
