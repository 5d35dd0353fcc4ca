// A parsed template: nodes that point to each other, constants and names. Immutable after parsing;
// any number of threads may render it.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja_language/value.h"

namespace larder::model::inline jinja_language {

enum class Op : uint8_t {
  // Expressions. `a`, `b`, `c` are operands, `items` what a literal or call lists.
  kConst,
  kName,
  kList,
  kTuple,
  kDict,       // items: key, value, key, value...
  kAttribute,  // a.name
  kItem,       // a[b]
  kSlice,      // a[items[0]:items[1]:items[2]]; null: not given
  kCall,       // a(items, named..., *b, **c)
  kFilter,     // a|name(items, named...); a null: what a filter block or set block made
  kTest,       // a is name(items...)
  kNot,
  kNegative,
  kPositive,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat,  // items
  kAnd,
  kOr,
  kCompare,    // items[0] compares[0] items[1] ...
  kCondition,  // b if a else c; c null: undefined
  // Statements. `body` and `otherwise` are blocks.
  kData,         // value
  kPrint,        // a
  kIf,           // a: body, otherwise (elif is an if in otherwise: see `chain`)
  kFor,          // target in a if b: body, else otherwise
  kSet,          // target = a
  kSetBlock,     // target = body through filter a (or null)
  kMacro,        // name(params with defaults): body
  kCallBlock,    // a is a kCall; body is the caller's
  kFilterBlock,  // a is a filter whose innermost operand is null
  kWith,         // items: target, value, target, value...
  kScope,        // body in a scope of its own
  kBreak,
  kContinue,
};

enum class CompareOp : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Node {
  Op op = Op::kConst;
  uint32_t line = 0;
  uint32_t depth = 1;  // depth of the tree from this node down, itself included
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;  // kMacro, kCallBlock
  Value value;
  const Text* name = nullptr;
  Builtin function = nullptr;  // kFilter, kTest; null if no function has that name
  Node *a = nullptr, *b = nullptr, *c = nullptr;
  std::vector<Node*> items;
  std::vector<std::pair<const Text*, Node*>> named;  // keyword arguments; kMacro: parameters,
                                                     // default or null
  std::vector<CompareOp> compares;
  Node* target = nullptr;  // kName, kTuple of targets, or kAttribute (namespace attribute)
  std::vector<Node*> body, otherwise;
  std::vector<std::pair<Node*, std::vector<Node*>>> chain;  // kIf: the elifs
};

// What templates can find by name; null if there is no such name. `method`: methods of values of a
// kind.
struct Builtins {
  Builtin (*filter)(std::string_view name);
  Builtin (*test)(std::string_view name);
  Builtin (*global)(std::string_view name);
  Builtin (*method)(Kind, std::string_view name);
};

struct ParsedTemplate {
  const Builtins* builtins = nullptr;
  std::deque<Node> nodes;
  std::deque<Text> texts;
  std::map<std::string, const Text*, std::less<>> names;  // one Text for each: names are compared
                                                          // by address
  std::vector<Node*> body;

  const Text* FindName(std::string_view name) const {
    const auto it = names.find(name);
    return it == names.end() ? nullptr : it->second;
  }
};

// Throws SyntaxError (lexer.h). `builtins` must outlive `out`.
void ParseTemplate(std::string_view source, const Builtins& builtins, ParsedTemplate& out);

}  // namespace larder::model::jinja_language
