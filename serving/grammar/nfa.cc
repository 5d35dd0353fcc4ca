#include "serving/grammar/nfa.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/work.h"
#include "serving/grammar/syntax_facts.h"

namespace larder::serving::inline grammar {
namespace {

using Kind = Expr::Kind;
using Node = Nfa::Node;
using PlainLoop = Nfa::PlainLoop;

constexpr size_t kMostNodes = 1'000'000;
constexpr uint32_t kHeavy = 1u << 20;       // too large to copy
constexpr uint32_t kMostCopiedNodes = 48;   // a repetition of no more is written out instead of
                                            // counted
constexpr uint32_t kMostInlinedNodes = 24;  // a rule of no more is copied to where it is used
constexpr int kInlineRounds = 4;            // and so are rules in it, this deep

constexpr size_t kMostForks = 1000;  // forks of texts with a common beginning, one after the other

bool Contains(const CodeSet& set, const CodeSet& part) {
  SpendWork(set.size());
  return Intersection(set, part) == part;
}

class Compiler {
 public:
  explicit Compiler(Syntax syntax) : syntax_(std::move(syntax)) {}

  Nfa Run() {
    nullable_ = FindNullable(syntax_);
    RefuseLeftRecursion(syntax_, nullable_);
    productive_ = FindProductive(syntax_);
    if (!productive_[syntax_.body(syntax_.root)]) throw Error("it matches no text");
    for (RuleId rule = 0; rule < syntax_.rules(); ++rule)
      nullable_rule_.push_back(nullable_[syntax_.body(rule)]);
    WeighRules();
    end_ = AddNode({.kind = Node::Kind::kEnd});
    nfa_.start = StartOf(syntax_.root);
    while (!to_do_.empty()) {
      const RuleId rule = to_do_.back();
      to_do_.pop_back();
      if (const auto stripped = to_strip_.find(rule); stripped != to_strip_.end())
        syntax_.Define(rule, Stripped(syntax_.body(stripped->second)));
      const NodeId entry = Emit(syntax_.body(rule), end_);
      SetSplit(starts_[rule], {entry});
    }
    MakeByteClasses();
    return std::move(nfa_);
  }

 private:
  // --- facts of expressions, also of those that Stripped adds ---

  bool Productive(ExprId id) const { return id >= productive_.size() || productive_[id]; }

  bool Nullable(ExprId id) {
    for (auto next = static_cast<ExprId>(nullable_.size()); next <= id; ++next) {
      const Expr& expr = syntax_.expr(next);
      SpendWork(1 + expr.parts.size());
      bool value = expr.kind == Kind::kSequence;
      if (expr.kind == Kind::kRule) value = nullable_rule_[expr.rule];
      if (expr.kind == Kind::kSequence) {
        for (const ExprId part : expr.parts) value = value && nullable_[part];
      } else if (expr.kind == Kind::kChoice) {
        for (const ExprId part : expr.parts) value = value || nullable_[part];
      } else if (expr.kind == Kind::kRepeat) {
        value = expr.least == 0 || nullable_[expr.parts[0]];
      } else if (expr.kind == Kind::kLimit) {
        value = nullable_[expr.parts[0]];
      } else if (expr.kind == Kind::kCount) {
        value = true;
      }
      nullable_.push_back(value);
    }
    return nullable_[id];
  }

  void WeighRules() {
    rule_weight_.assign(syntax_.rules(), kHeavy);
    for (int round = 0; round < kInlineRounds; ++round) {
      weight_.clear();
      std::vector<uint32_t> next(syntax_.rules());
      for (RuleId rule = 0; rule < syntax_.rules(); ++rule) {
        const uint32_t weight = Weight(syntax_.body(rule));
        next[rule] = weight <= kMostInlinedNodes && rule != syntax_.root ? weight : kHeavy;
      }
      rule_weight_ = std::move(next);
    }
    weight_.clear();
    weighed_ = true;
  }

  // How many nodes Emit makes of it, roughly; a call of a rule that is not inlined counts as heavy
  // while it is being found out which are, and as one node after that.
  uint32_t Weight(ExprId id) {
    for (auto next = static_cast<ExprId>(weight_.size()); next <= id; ++next) {
      const Expr& expr = syntax_.expr(next);
      SpendWork(1 + expr.parts.size());
      uint64_t sum = 1;
      for (const ExprId part : expr.parts) sum += weight_[part];
      if (expr.kind == Kind::kText) sum = expr.text.size();
      if (expr.kind == Kind::kClass) sum = expr.set.back().last < 0x80 ? 1 : 8;
      if (expr.kind == Kind::kRepeat && WrittenOut(expr))
        sum = 1 + weight_[expr.parts[0]] * uint64_t{Copies(expr)};
      if (expr.kind == Kind::kRule) sum = RuleWeight(expr.rule);
      weight_.push_back(static_cast<uint32_t>(std::min<uint64_t>(sum, kHeavy)));
    }
    return weight_[id];
  }
  uint32_t RuleWeight(RuleId rule) const {
    if (rule >= rule_weight_.size()) return 1;  // made by Stripped: called
    return weighed_ && rule_weight_[rule] == kHeavy ? 1 : rule_weight_[rule];
  }

  static uint32_t Copies(const Expr& repeat) {
    return repeat.most == kUnbounded ? std::max(repeat.least, 1u) : repeat.most;
  }
  // A loop over a class is rather counted, since a vocabulary's plain tokens are then decided at
  // once.
  bool WrittenOut(const Expr& repeat) {
    const uint32_t copies = Copies(repeat);
    if (copies == 1) return true;
    if (HasPlainClass(repeat.parts[0])) return false;
    return uint64_t{copies} * weight_[repeat.parts[0]] <= kMostCopiedNodes;
  }

  // --- expressions without the empty text ---

  ExprId RuleFor(ExprId body, bool nullable) {
    const RuleId rule = syntax_.AddRule("");
    syntax_.Define(rule, body);
    nullable_rule_.push_back(nullable);
    return syntax_.Rule(rule);
  }

  // Matches the same texts but the empty one.
  ExprId Stripped(ExprId id) {
    if (!Nullable(id)) return id;
    if (const auto known = stripped_.find(id); known != stripped_.end()) return known->second;
    const Expr expr = syntax_.expr(id);  // a copy: expressions are added
    SpendWork(1 + expr.parts.size());
    ExprId result = syntax_.Never();
    if (expr.kind == Kind::kChoice) {
      std::vector<ExprId> parts;
      for (const ExprId part : expr.parts) parts.push_back(Stripped(part));
      result = syntax_.Choice(parts);
    } else if (expr.kind == Kind::kSequence) {
      // All parts may be empty: the first that is not, then the rest. A part of more than a few
      // nodes stands in both: it is made once, or nested repetitions would double at every level.
      std::vector<ExprId> choices;
      ExprId rest = syntax_.Empty();
      for (size_t i = expr.parts.size(); i-- > 0;) {
        ExprId part = expr.parts[i], stripped = Stripped(part);
        if (Weight(stripped) > kMostInlinedNodes) {
          stripped = RuleFor(stripped, false);
          part = syntax_.Choice({syntax_.Empty(), stripped});
        }
        choices.push_back(syntax_.Sequence({stripped, rest}));
        rest = RuleFor(syntax_.Sequence({part, rest}), true);
      }
      result = syntax_.Choice(choices);
    } else if (expr.kind == Kind::kRepeat) {
      if (!Productive(expr.parts[0])) return syntax_.Never();
      result = syntax_.Repeat(Stripped(expr.parts[0]), 1, expr.most);
    } else if (expr.kind == Kind::kRule) {
      if (const auto known = stripped_rules_.find(expr.rule); known != stripped_rules_.end())
        return syntax_.Rule(known->second);
      const RuleId rule = syntax_.AddRule(syntax_.name(expr.rule));
      nullable_rule_.push_back(false);
      stripped_rules_.emplace(expr.rule, rule);
      to_strip_.emplace(rule, expr.rule);  // later: a chain of rules may be longer than the stack
                                           // is deep
      return syntax_.Rule(rule);
    }
    stripped_.emplace(id, result);
    return result;
  }

  // --- nodes ---

  NodeId AddNode(Node node) {
    if (nfa_.nodes.size() >= kMostNodes)
      throw Error("its automaton has more than {} nodes", kMostNodes);
    SpendWork(1);
    HoldWork(sizeof node);
    nfa_.nodes.push_back(node);
    return static_cast<NodeId>(nfa_.nodes.size() - 1);
  }
  void SetSplit(NodeId node, const std::vector<NodeId>& to) {
    SpendWork(to.size());
    HoldWork(to.size() * sizeof(NodeId));
    const auto begin = static_cast<uint32_t>(nfa_.splits.size());
    nfa_.splits.insert(nfa_.splits.end(), to.begin(), to.end());
    nfa_.nodes[node] = {.kind = Node::Kind::kSplit,
                        .begin = begin,
                        .end = static_cast<uint32_t>(nfa_.splits.size())};
    if (nfa_.splits.size() > 4 * kMostNodes)
      throw Error("its automaton has more than {} nodes", kMostNodes);
  }
  NodeId AddSplit(const std::vector<NodeId>& to) {
    if (to.size() == 1) return to[0];
    const NodeId node = AddNode({});
    SetSplit(node, to);
    return node;
  }
  NodeId AddBytes(const std::vector<Nfa::Edge>& edges) {
    SpendWork(edges.size());
    HoldWork(edges.size() * sizeof(Nfa::Edge));
    const auto begin = static_cast<uint32_t>(nfa_.edges.size());
    nfa_.edges.insert(nfa_.edges.end(), edges.begin(), edges.end());
    return AddNode({.kind = Node::Kind::kBytes,
                    .begin = begin,
                    .end = static_cast<uint32_t>(nfa_.edges.size())});
  }
  NodeId AddByte(char byte, NodeId to) {
    const auto value = static_cast<uint8_t>(byte);
    return AddBytes({{value, value, to}});
  }
  NodeId StartOf(RuleId rule) {
    const auto [place, is_new] = starts_.try_emplace(rule, 0);
    if (is_new) {
      place->second = AddNode({});
      to_do_.push_back(rule);
    }
    return place->second;
  }

  // The entry of nodes that match the expression and then are at `to`.
  NodeId Emit(ExprId id, NodeId to) {
    const Expr expr = syntax_.expr(id);  // a copy: Stripped adds expressions
    SpendWork(StepsOfText(expr.text.size()) + expr.set.size() + expr.parts.size());
    switch (expr.kind) {
      case Kind::kNever:
        return AddBytes({});
      case Kind::kEmpty:
        return to;
      case Kind::kText:
        return EmitText(expr.text, expr.tokens, to);
      case Kind::kClass:
        return EmitClass(expr.set, to);
      case Kind::kSequence:
        for (size_t i = expr.parts.size(); i-- > 0;) to = Emit(expr.parts[i], to);
        return to;
      case Kind::kChoice:
        return EmitChoice(expr, to);
      case Kind::kRepeat:
        return EmitRepeat(expr, to);
      case Kind::kCount:
        return AddNode({.kind = Node::Kind::kCount, .begin = to});
      case Kind::kLimit:
        return EmitLimit(expr, to);
      case Kind::kRule:
        if (limit_ > 0 || Inlined(expr.rule)) return Emit(syntax_.body(expr.rule), to);
        const NodeId start = StartOf(expr.rule);
        return AddNode({.kind = Node::Kind::kCall, .begin = start, .end = to});
    }
    return to;
  }
  bool Inlined(RuleId rule) const {
    return rule < rule_weight_.size() && rule_weight_[rule] <= kMostInlinedNodes;
  }

  NodeId EmitText(std::string_view text, Expr::Tokens tokens, NodeId to) {
    NodeId node = to;
    for (size_t i = text.size(); i-- > 0;) node = AddByte(text[i], node);
    if (tokens != Expr::Tokens::kNone) {
      HoldWork(sizeof(Nfa::Literal) + text.size());
      nfa_.literals.push_back({std::string(text), node, to, tokens == Expr::Tokens::kOwn});
    }
    return node;
  }

  NodeId EmitChoice(const Expr& expr, NodeId to) {
    std::vector<std::string> texts;
    std::vector<NodeId> entries;
    for (const ExprId part : expr.parts) {
      if (!Productive(part)) continue;
      const Expr& one = syntax_.expr(part);
      if (one.kind == Kind::kText && one.tokens == Expr::Tokens::kNone) {
        texts.push_back(one.text);
      } else {
        entries.push_back(Emit(part, to));
      }
    }
    if (!texts.empty()) {
      std::sort(texts.begin(), texts.end());
      texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
      entries.push_back(EmitTexts(texts, 0, to, 0));
    }
    if (entries.empty()) return AddBytes({});
    return AddSplit(entries);
  }

  // Sorted, different texts that are equal before `at`: a tree of their bytes.
  NodeId EmitTexts(std::span<const std::string> texts, size_t at, NodeId to, size_t forks) {
    if (forks > kMostForks)
      throw Error("its texts share their beginnings more than {} deep", kMostForks);
    const std::string_view first = texts.front(), last = texts.back();
    SpendWork(texts.size());
    size_t same = at;
    while (same < first.size() && same < last.size() && first[same] == last[same]) ++same;
    std::vector<NodeId> ways;
    std::vector<Nfa::Edge> edges;
    size_t begin = 0;
    if (texts[0].size() == same) {
      ways.push_back(to);
      begin = 1;
    }
    for (size_t end = begin; begin < texts.size(); begin = end) {
      const char byte = texts[begin][same];
      while (end < texts.size() && texts[end][same] == byte) ++end;
      const auto value = static_cast<uint8_t>(byte);
      edges.push_back(
          {value, value, EmitTexts(texts.subspan(begin, end - begin), same + 1, to, forks + 1)});
    }
    if (!edges.empty()) ways.push_back(AddBytes(edges));
    NodeId node = AddSplit(ways);
    for (size_t i = same; i-- > at;) node = AddByte(first[i], node);
    return node;
  }

  // --- code points as UTF-8 ---

  struct Utf8 {
    NodeId to;
    std::map<std::tuple<uint32_t, uint32_t, int>, NodeId> known;
  };
  NodeId EmitClass(const CodeSet& set, NodeId to) {
    struct Length {
      uint32_t first, last, lead;
      int following;
    };
    static constexpr Length kLengths[] = {{0, 0x7f, 0, 0},
                                          {0x80, 0x7ff, 0xc0, 1},
                                          {0x800, 0xd7ff, 0xe0, 2},
                                          {0xe000, 0xffff, 0xe0, 2},
                                          {0x10000, kLastCodePoint, 0xf0, 3}};
    Utf8 utf8{to, {}};
    std::vector<Nfa::Edge> edges;
    for (const CodeRange range : set) {
      for (const Length& length : kLengths) {
        const uint32_t first = std::max(range.first, length.first),
                       last = std::min(range.last, length.last);
        if (first <= last) AddEdges(edges, first, last, length.following, length.lead, utf8);
      }
    }
    return AddBytes(edges);
  }
  // Edges for values from first to last, of which `following` bytes of six bits each come after
  // this one.
  void AddEdges(std::vector<Nfa::Edge>& edges, uint32_t first, uint32_t last, int following,
                uint32_t base, Utf8& utf8) {
    const uint32_t rest = (1u << 6 * following) - 1;
    uint32_t low = first >> 6 * following, high = last >> 6 * following;
    const auto edge = [&](uint32_t a, uint32_t b, uint32_t from, uint32_t to) {
      edges.push_back({static_cast<uint8_t>(base + a), static_cast<uint8_t>(base + b),
                       Following(from, to, following, utf8)});
    };
    if (following > 0 && low == high) return edge(low, high, first & rest, last & rest);
    if (following > 0 && (first & rest) != 0) {
      edge(low, low, first & rest, rest);
      ++low;
    }
    if (following > 0 && (last & rest) != rest) {
      edge(high, high, 0, last & rest);
      --high;  // high > low before, or the values were equal above
    }
    if (low <= high) edge(low, high, 0, rest);
  }
  NodeId Following(uint32_t first, uint32_t last, int count, Utf8& utf8) {
    if (count == 0) return utf8.to;
    if (const auto known = utf8.known.find({first, last, count}); known != utf8.known.end())
      return known->second;
    std::vector<Nfa::Edge> edges;
    AddEdges(edges, first, last, count - 1, 0x80, utf8);
    return utf8.known[{first, last, count}] = AddBytes(edges);
  }

  // --- repetitions ---

  NodeId EmitRepeat(const Expr& expr, NodeId to) {
    if (!Productive(expr.parts[0]))
      return to;  // it may be left out, or the choice around it is not taken
    ExprId body = expr.parts[0];
    uint32_t least = expr.least, most = expr.most;
    if (limit_ > 0 && most > limit_ && most != kUnbounded && least <= limit_)
      most = limit_;  // each time it has a character
    if (Nullable(body)) {
      body = Stripped(body);
      if (body == syntax_.Never()) return to;
      least = 0;
    }
    Weight(body);
    const Expr repeat{.kind = Kind::kRepeat, .least = least, .most = most, .parts = {body}};
    if (limit_ == 0 && !WrittenOut(repeat)) {
      const auto loop = static_cast<uint32_t>(nfa_.loops.size());
      nfa_.loops.push_back({least, most, 0, to});
      const NodeId entry =
          EmitBody(body, end_, most == kUnbounded ? PlainLoop::kAlways : PlainLoop::kCounted);
      nfa_.loops[loop].body = entry;
      return AddNode({.kind = Node::Kind::kLoop, .begin = loop});
    }
    if (most == kUnbounded) {
      const NodeId again = AddNode({});
      NodeId entry = EmitBody(body, again, PlainLoop::kAlways);
      SetSplit(again, {entry, to});
      if (least == 0) return again;
      for (uint32_t i = 1; i < least; ++i) entry = Emit(body, entry);
      return entry;
    }
    NodeId entry = to;
    for (uint32_t i = least; i < most; ++i) entry = AddSplit({Emit(body, entry), to});
    for (uint32_t i = 0; i < least; ++i) entry = Emit(body, entry);
    return entry;
  }

  // --- limits ---

  NodeId EmitLimit(const Expr& expr, NodeId to) {
    const uint32_t last = expr.most == kUnbounded ? expr.least : expr.most;
    limit_ = std::max(last, 1u);
    const auto first = static_cast<NodeId>(nfa_.nodes.size());
    const NodeId entry = Emit(expr.parts[0], end_);
    limit_ = 0;
    FindAlive(first, expr, last);
    nfa_.limits.push_back({expr.least, expr.most, entry, to});
    return AddNode(
        {.kind = Node::Kind::kLimit, .begin = static_cast<uint32_t>(nfa_.limits.size() - 1)});
  }

  // For the kCount nodes from `first` on, with which counts the limit's end can be reached. The
  // least solution for the numbers of characters from a node to the end; without an upper bound
  // `last` stands for itself and more.
  void FindAlive(NodeId first, const Expr& limit, uint32_t last) {
    const size_t words = last / 64 + 1, nodes = nfa_.nodes.size() - first;
    SpendWork(nodes * words);
    HoldWork(2 * nodes * words * sizeof(uint64_t));
    std::vector<uint64_t> rest(nodes * words), end(words), sum(words);
    end[0] = 1;
    const auto of = [&](NodeId node) {
      return node < first ? end.data() : &rest[(node - first) * words];
    };
    const auto has = [](const uint64_t* set, uint32_t i) {
      return (set[i / 64] >> i % 64 & 1) != 0;
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < nodes; ++i) {
        const Node& node = nfa_.nodes[first + i];
        std::fill(sum.begin(), sum.end(), 0);
        const auto add = [&](NodeId to) {
          const uint64_t* more = of(to);
          for (size_t w = 0; w < words; ++w) sum[w] |= more[w];
        };
        SpendWork(words + (node.kind == Node::Kind::kCount ? 0 : node.end - node.begin));
        if (node.kind == Node::Kind::kBytes) {
          for (uint32_t e = node.begin; e < node.end; ++e) add(nfa_.edges[e].to);
        } else if (node.kind == Node::Kind::kSplit) {
          for (uint32_t s = node.begin; s < node.end; ++s) add(nfa_.splits[s]);
        } else {
          const uint64_t* behind = of(node.begin);
          const bool stays = limit.most == kUnbounded && has(behind, last);
          for (size_t w = words; w-- > 0;)
            sum[w] = behind[w] << 1 | (w > 0 ? behind[w - 1] >> 63 : 0);
          if (last % 64 != 63) sum[words - 1] &= (uint64_t{2} << last % 64) - 1;
          if (stays) sum[last / 64] |= uint64_t{1} << last % 64;
        }
        uint64_t* known = &rest[i * words];
        for (size_t w = 0; w < words; ++w) {
          changed = changed || (sum[w] & ~known[w]) != 0;
          known[w] |= sum[w];
        }
      }
    }
    for (size_t i = 0; i < nodes; ++i) {
      Node& node = nfa_.nodes[first + i];
      if (node.kind != Node::Kind::kCount) continue;
      SpendWork(last);
      node.end = static_cast<uint32_t>(nfa_.alive.size());
      nfa_.alive.resize(nfa_.alive.size() + words);
      uint64_t* alive = &nfa_.alive[node.end];
      const uint64_t* lengths = &rest[i * words];
      for (uint32_t count = 0; count <= last; ++count) {
        const uint32_t from = count < limit.least ? limit.least - count : 0;
        const uint32_t length = NextOf(lengths, from, last);
        if (length == kUnbounded || (limit.most != kUnbounded && count + length > limit.most))
          continue;
        alive[count / 64] |= uint64_t{1} << count % 64;
      }
    }
  }
  // The least number of the set that is at least `from`; kUnbounded: there is none.
  static uint32_t NextOf(const uint64_t* set, uint32_t from, uint32_t last) {
    for (uint32_t w = from / 64; w <= last / 64; ++w) {
      const uint64_t bits = w == from / 64 ? set[w] & ~uint64_t{0} << from % 64 : set[w];
      if (bits != 0) return w * 64 + static_cast<uint32_t>(std::countr_zero(bits));
    }
    return kUnbounded;
  }

  // Whether one of the ways through a body is a class with all plain characters.
  bool HasPlainClass(ExprId id) const {
    const Expr& expr = syntax_.expr(id);
    SpendWork(1);
    if (expr.kind == Kind::kClass) return Contains(expr.set, PlainSet());
    if (expr.kind == Kind::kRule && Inlined(expr.rule))
      return HasPlainClass(syntax_.body(expr.rule));
    if (expr.kind != Kind::kChoice) return false;
    return std::any_of(expr.parts.begin(), expr.parts.end(),
                       [&](ExprId part) { return HasPlainClass(part); });
  }
  NodeId EmitBody(ExprId id, NodeId to, PlainLoop plain) {
    const Expr expr = syntax_.expr(id);
    SpendWork(1 + expr.parts.size());
    if (expr.kind == Kind::kRule && Inlined(expr.rule))
      return EmitBody(syntax_.body(expr.rule), to, plain);
    if (expr.kind == Kind::kChoice && HasPlainClass(id)) {
      std::vector<NodeId> entries;
      for (const ExprId part : expr.parts) {
        if (Productive(part)) entries.push_back(EmitBody(part, to, plain));
      }
      return AddSplit(entries);
    }
    const NodeId entry = Emit(id, to);
    if (expr.kind == Kind::kClass && Contains(expr.set, PlainSet()))
      nfa_.nodes[entry].plain = plain;
    return entry;
  }

  void MakeByteClasses() {
    std::array<bool, 257> begins{};
    begins[0] = true;
    for (const Nfa::Edge& edge : nfa_.edges) {
      begins[edge.first] = true;
      begins[edge.last + 1u] = true;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      if (begins[byte]) nfa_.class_byte[nfa_.classes++] = static_cast<uint8_t>(byte);
      nfa_.byte_class[byte] = static_cast<uint8_t>(nfa_.classes - 1);
    }
  }

  Syntax syntax_;
  Nfa nfa_;
  NodeId end_ = 0;
  uint32_t limit_ = 0;  // inside a limit its last count, else 0: there nothing is called or counted
  std::map<RuleId, NodeId> starts_;
  std::vector<RuleId> to_do_;
  std::vector<bool> productive_, nullable_, nullable_rule_;
  std::vector<uint32_t> weight_, rule_weight_;
  bool weighed_ = false;
  std::map<ExprId, ExprId> stripped_;
  std::map<RuleId, RuleId> stripped_rules_, to_strip_;
};

}  // namespace

const CodeSet& PlainSet() {
  static const CodeSet set = {
      {0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7e}, {0x80, 0xd7ff}, {0xe000, kLastCodePoint}};
  return set;
}

Nfa CompileNfa(Syntax syntax) { return Compiler(std::move(syntax)).Run(); }

}  // namespace larder::serving::grammar
