#include "serving/grammar/syntax_facts.h"

#include <algorithm>

#include "base/error.h"
#include "base/work.h"

namespace larder::serving::inline grammar {
namespace {

using Kind = Expr::Kind;

// The least solution of: a leaf holds if `leaf` says so, a sequence if all its parts do, a choice
// or a limit if one does, a repetition if it may be left out or its part holds, a rule if its body
// does.
template <typename Leaf>
std::vector<bool> LeastSolution(const Syntax& syntax, Leaf leaf) {
  const size_t count = syntax.exprs();
  SpendWork(3 * count);
  std::vector<bool> holds(count);
  std::vector<uint32_t> missing(count, 1);
  std::vector<std::vector<ExprId>> users(count);  // those that are to hear when it holds
  std::vector<ExprId> found;
  const auto set = [&](ExprId id) {
    if (holds[id]) return;
    holds[id] = true;
    found.push_back(id);
  };
  for (ExprId id = 0; id < count; ++id) {
    const Expr& expr = syntax.expr(id);
    for (const ExprId part : expr.parts) users[part].push_back(id);
    if (expr.kind == Kind::kRule) users[syntax.body(expr.rule)].push_back(id);
    if (expr.kind == Kind::kSequence) missing[id] = static_cast<uint32_t>(expr.parts.size());
  }
  for (ExprId id = 0; id < count; ++id) {
    const Expr& expr = syntax.expr(id);
    if (expr.kind == Kind::kRepeat ? expr.least == 0 : leaf(expr.kind)) set(id);
  }
  while (!found.empty()) {
    const ExprId id = found.back();
    found.pop_back();
    for (const ExprId user : users[id]) {
      if (missing[user] > 0 && --missing[user] == 0) set(user);
    }
  }
  return holds;
}

// The rules that the expression can begin with. Expressions are nested at most kMostExprDepth deep.
void FindFirstRules(const Syntax& syntax, const std::vector<bool>& nullable, ExprId id,
                    std::vector<RuleId>& out) {
  SpendWork(1);
  const Expr& expr = syntax.expr(id);
  if (expr.kind == Kind::kRule) {
    HoldWork(sizeof(RuleId));
    out.push_back(expr.rule);
  }
  for (const ExprId part : expr.parts) {
    FindFirstRules(syntax, nullable, part, out);
    if (expr.kind == Kind::kSequence && !nullable[part]) break;
  }
}

}  // namespace

std::vector<bool> FindNullable(const Syntax& syntax) {
  return LeastSolution(syntax,
                       [](Kind kind) { return kind == Kind::kEmpty || kind == Kind::kCount; });
}

std::vector<bool> FindProductive(const Syntax& syntax) {
  return LeastSolution(syntax, [](Kind kind) {
    return kind == Kind::kEmpty || kind == Kind::kCount || kind == Kind::kText ||
           kind == Kind::kClass;
  });
}

void RefuseLeftRecursion(const Syntax& syntax, const std::vector<bool>& nullable) {
  enum class Visit : uint8_t { kNot, kOpen, kDone };
  std::vector<Visit> visits(syntax.rules(), Visit::kNot);
  struct Open {
    RuleId rule;
    std::vector<RuleId> next;
  };
  std::vector<Open> path;
  const auto enter = [&](RuleId rule) {
    visits[rule] = Visit::kOpen;
    path.push_back({rule, {}});
    FindFirstRules(syntax, nullable, syntax.body(rule), path.back().next);
  };
  for (RuleId rule = 0; rule < syntax.rules(); ++rule) {
    if (visits[rule] != Visit::kNot) continue;
    enter(rule);
    while (!path.empty()) {
      if (path.back().next.empty()) {
        visits[path.back().rule] = Visit::kDone;
        path.pop_back();
        continue;
      }
      const RuleId next = path.back().next.back();
      path.back().next.pop_back();
      if (visits[next] == Visit::kOpen)
        throw Error(
            "rule '{}' can begin with itself (left recursion): expected it to begin with something "
            "else",
            syntax.name(next));
      if (visits[next] == Visit::kNot) enter(next);
    }
  }
}

}  // namespace larder::serving::grammar
