#include "serving/grammar/syntax.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/work.h"

namespace larder::serving::inline grammar {

CodeSet Normalised(CodeSet set) {
  std::sort(set.begin(), set.end(), [](auto& a, auto& b) { return a.first < b.first; });
  CodeSet out;
  for (const CodeRange range : set) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodeSet Complement(const CodeSet& set) {
  CodeSet out;
  uint32_t next = 0;
  for (const CodeRange range : set) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.push_back({next, kLastCodePoint});
  return out;
}

CodeSet Intersection(const CodeSet& a, const CodeSet& b) {
  CodeSet out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const uint32_t first = std::max(a[i].first, b[j].first), last = std::min(a[i].last, b[j].last);
    if (first <= last) out.push_back({first, last});
    a[i].last < b[j].last ? ++i : ++j;
  }
  return out;
}

void AppendUtf8(std::string& text, uint32_t c) {
  if ((c >= 0xd800 && c <= 0xdfff) || c > kLastCodePoint) c = 0xfffd;
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

Syntax::Syntax() {
  Add({.kind = Expr::Kind::kNever});
  Add({.kind = Expr::Kind::kEmpty});
}

ExprId Syntax::Add(Expr expr) {
  if (exprs_.size() >= kMostExprs) throw Error("it has more than {} parts", kMostExprs);
  const size_t bytes = expr.text.size() + expr.set.size() * sizeof(CodeRange);
  SpendWork(StepsOfText(bytes) + expr.parts.size());
  HoldWork(sizeof expr + bytes + expr.parts.size() * sizeof(ExprId));
  text_bytes_ += bytes;
  if (text_bytes_ > kMostTextBytes)
    throw Error("its literals have more than {} bytes", kMostTextBytes);
  for (const ExprId part : expr.parts) expr.depth = std::max(expr.depth, exprs_[part].depth + 1);
  if (expr.depth > kMostExprDepth) throw Error("it is nested more than {} deep", kMostExprDepth);
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Syntax::Text(std::string bytes, Expr::Tokens tokens) {
  if (bytes.empty()) return Empty();
  return Add({.kind = Expr::Kind::kText, .tokens = tokens, .text = std::move(bytes)});
}

ExprId Syntax::Class(CodeSet set) {
  if (set.empty()) return Never();
  return Add({.kind = Expr::Kind::kClass, .set = std::move(set)});
}

ExprId Syntax::Sequence(const std::vector<ExprId>& parts) {
  SpendWork(parts.size());
  std::vector<ExprId> kept;
  for (const ExprId part : parts) {
    if (part == Never()) return Never();
    if (part != Empty()) kept.push_back(part);
  }
  if (kept.empty()) return Empty();
  if (kept.size() == 1) return kept[0];
  return Add({.kind = Expr::Kind::kSequence, .parts = std::move(kept)});
}

ExprId Syntax::Choice(const std::vector<ExprId>& parts) {
  SpendWork(parts.size());
  std::vector<ExprId> kept;
  for (const ExprId part : parts) {
    if (part != Never()) kept.push_back(part);
  }
  if (kept.empty()) return Never();
  if (kept.size() == 1) return kept[0];
  return Add({.kind = Expr::Kind::kChoice, .parts = std::move(kept)});
}

ExprId Syntax::Repeat(ExprId expr, uint32_t least, uint32_t most) {
  if (most == 0 || expr == Empty()) return Empty();
  if (expr == Never()) return least == 0 ? Empty() : Never();
  if (least == 1 && most == 1) return expr;
  return Add({.kind = Expr::Kind::kRepeat, .least = least, .most = most, .parts = {expr}});
}

ExprId Syntax::Count() { return Add({.kind = Expr::Kind::kCount}); }

ExprId Syntax::Limit(ExprId expr, uint32_t least, uint32_t most) {
  if (expr == Never()) return Never();
  return Add({.kind = Expr::Kind::kLimit, .least = least, .most = most, .parts = {expr}});
}

ExprId Syntax::Rule(RuleId rule) { return Add({.kind = Expr::Kind::kRule, .rule = rule}); }

RuleId Syntax::AddRule(std::string name) {
  if (rules_.size() >= kMostExprs) throw Error("it has more than {} rules", kMostExprs);
  SpendWork(StepsOfText(name.size()));
  HoldWork(sizeof(NamedRule) + name.size());
  rules_.push_back({std::move(name), Never()});
  return static_cast<RuleId>(rules_.size() - 1);
}

void Syntax::Define(RuleId rule, ExprId body) { rules_[rule].body = body; }

}  // namespace larder::serving::grammar
