// Syntax: the rules of a grammar as expressions over code points and bytes. GBNF text and JSON
// schemas are read into it; Nfa (nfa.h) is made of it. It belongs to the thread that compiles a
// grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace larder::serving::inline grammar {

using ExprId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kUnbounded = UINT32_MAX;
inline constexpr uint32_t kLastCodePoint = 0x10ffff;

// A grammar comes from a client: its size is bounded, and the cost of making it is counted by the
// thread's Work (base/work.h).
inline constexpr size_t kMostExprs = 200'000;
inline constexpr size_t kMostTextBytes = 4u << 20;  // bytes of all literals
inline constexpr size_t kMostExprDepth = 256;
inline constexpr uint32_t kMostLimit = 2048;  // bound on kLimit's least and most, except kUnbounded

struct CodeRange {
  uint32_t first, last;  // both inside
  bool operator==(const CodeRange&) const = default;
};
using CodeSet = std::vector<CodeRange>;  // sorted, apart from each other

CodeSet Normalised(CodeSet);  // takes ranges in any order
CodeSet Complement(const CodeSet&);
CodeSet Intersection(const CodeSet&, const CodeSet&);
// Appends the code point as UTF-8; a surrogate has no such form and becomes U+FFFD.
void AppendUtf8(std::string& text, uint32_t code_point);

struct Expr {
  enum class Kind : uint8_t {
    kNever,  // matches nothing
    kEmpty,  // matches the empty text
    kText,   // these bytes
    kClass,  // one code point
    kSequence,
    kChoice,
    kRepeat,  // parts[0], least to most times
    kRule,
    kCount,  // matches the empty text and counts one character of the enclosing kLimit
    kLimit,  // parts[0] with least to most kCounts; not nested, and no recursive rule inside
  };
  Kind kind = Kind::kEmpty;
  // kText: the tokens that match in addition to its bytes.
  enum class Tokens : uint8_t {
    kNone,
    kControls,  // control tokens whose texts occur in it
    kOwn,       // the special token with this text; the bytes match only if there is none
  };
  Tokens tokens = Tokens::kNone;
  RuleId rule = 0;
  uint32_t least = 0, most = 0;
  uint32_t depth = 1;
  std::string text;
  CodeSet set;
  std::vector<ExprId> parts;
};

class Syntax {
 public:
  Syntax();

  // Expressions; simple identities are applied (an empty choice is Never). All throw Error at a
  // limit.
  ExprId Never() const { return 0; }
  ExprId Empty() const { return 1; }
  ExprId Text(std::string bytes, Expr::Tokens tokens = Expr::Tokens::kNone);
  ExprId Class(CodeSet);
  ExprId Sequence(const std::vector<ExprId>&);
  ExprId Choice(const std::vector<ExprId>&);
  ExprId Repeat(ExprId, uint32_t least, uint32_t most);
  ExprId Optional(ExprId expr) { return Repeat(expr, 0, 1); }
  ExprId Rule(RuleId);
  ExprId Count();
  ExprId Limit(ExprId, uint32_t least, uint32_t most);

  RuleId AddRule(std::string name);  // defined later
  void Define(RuleId, ExprId);

  const Expr& expr(ExprId id) const { return exprs_[id]; }
  size_t exprs() const { return exprs_.size(); }
  size_t rules() const { return rules_.size(); }
  const std::string& name(RuleId id) const { return rules_[id].name; }
  ExprId body(RuleId id) const { return rules_[id].body; }
  RuleId root = 0;

 private:
  struct NamedRule {
    std::string name;
    ExprId body = 0;
  };
  ExprId Add(Expr);

  std::vector<Expr> exprs_;
  std::vector<NamedRule> rules_;
  size_t text_bytes_ = 0;
};

}  // namespace larder::serving::grammar
