#include "serving/grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/work.h"
#include "serving/grammar/json_schema.h"
#include "serving/grammar/regex.h"

namespace larder::serving::inline grammar {
namespace {

constexpr size_t kMostGroups = 100;  // nested
constexpr uint32_t kMostRepeats = 1'000'000;
constexpr std::string_view kToken = "%token", kRegex = "%regex", kGbnf = "%gbnf";
constexpr size_t kMostGrammars = 4;  // nested, with %gbnf

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class GbnfReader {
 public:
  // nested: how many grammars this one is an atom of.
  GbnfReader(std::string_view text, Syntax& syntax, size_t nested)
      : text_(text), syntax_(syntax), nested_(nested) {
    if (text.size() > kMostGbnfBytes)
      throw Error("grammar: {} bytes: expected at most {}", text.size(), kMostGbnfBytes);
  }

  // Adds the grammar's rules; returns its root.
  RuleId Run() {
    try {
      SkipSpace(true);
      while (at_ < text_.size()) {
        ReadRule();
        SkipSpace(true);
      }
    } catch (const SyntaxError&) {
      throw;
    } catch (const Error& error) {  // a limit
      Fail("{}", error.what());
    }
    const auto root = rules_.find("root");
    if (root == rules_.end() || !root->second.defined)
      throw Error("grammar: it has no rule 'root': expected one; a text must match it");
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        at_ = rule.used_at;
        Fail("rule '{}' is not defined", name);
      }
    }
    return root->second.id;
  }

 private:
  class SyntaxError : public Error {
    using Error::Error;
  };
  struct Named {
    RuleId id = 0;
    bool defined = false;
    size_t used_at = 0;
  };

  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
    const std::string_view before = text_.substr(0, at_);
    const auto line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    const size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
    throw SyntaxError("grammar: {}:{}: {}", line, at_ - begin + 1,
                      fmt::format(format, std::forward<Args>(args)...));
  }
  bool Is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Take(char c) {
    if (!Is(c)) return false;
    ++at_;
    return true;
  }
  std::string Here() const {
    if (at_ >= text_.size()) return "the end";
    return fmt::format("'{}'", text_[at_]);
  }

  void SkipSpace(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view ReadName() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Named& RuleNamed(std::string_view name) {
    const auto [place, is_new] = rules_.try_emplace(std::string(name));
    if (is_new) place->second = {syntax_.AddRule(std::string(name)), false, at_ - name.size()};
    return place->second;
  }

  void ReadRule() {
    const std::string_view name = ReadName();
    if (name.empty()) Fail("expected the name of a rule, not {}", Here());
    Named& rule = RuleNamed(name);
    if (rule.defined) {
      at_ -= name.size();
      Fail("rule '{}' is defined twice", name);
    }
    rule.defined = true;
    SkipSpace(false);
    if (text_.substr(at_, 3) != "::=") Fail("expected ::= after the name, not {}", Here());
    at_ += 3;
    SkipSpace(true);
    const RuleId id = rule.id;
    syntax_.Define(id, ReadChoice(0));
    if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r')
      Fail("expected the end of the line, not {}", Here());
  }

  ExprId ReadChoice(size_t nested) {
    std::vector<ExprId> ways = {ReadSequence(nested)};
    while (Take('|')) {
      SkipSpace(true);
      ways.push_back(ReadSequence(nested));
    }
    return syntax_.Choice(ways);
  }

  ExprId ReadSequence(size_t nested) {
    std::vector<ExprId> parts;
    while (true) {
      if (Is('"')) {
        parts.push_back(ReadLiteral());
      } else if (Is('[')) {
        parts.push_back(ReadClass());
      } else if (Take('.')) {
        parts.push_back(syntax_.Class({{0, kLastCodePoint}}));
      } else if (Is('(')) {
        if (nested == kMostGroups) Fail("groups are nested more than {} deep", kMostGroups);
        ++at_;
        SkipSpace(true);
        parts.push_back(ReadChoice(nested + 1));
        if (!Take(')')) Fail("expected ) or more of the group, not {}", Here());
      } else if (Is('%')) {
        parts.push_back(ReadAtom());
      } else if (at_ < text_.size() && IsNameChar(text_[at_])) {
        parts.push_back(syntax_.Rule(RuleNamed(ReadName()).id));
      } else {
        break;
      }
      SkipSpace(nested > 0);
      parts.back() = ReadRepeats(parts.back(), nested);
    }
    return syntax_.Sequence(parts);
  }

  ExprId ReadRepeats(ExprId expr, size_t nested) {
    while (true) {
      if (Take('*')) {
        expr = syntax_.Repeat(expr, 0, kUnbounded);
      } else if (Take('+')) {
        expr = syntax_.Repeat(expr, 1, kUnbounded);
      } else if (Take('?')) {
        expr = syntax_.Optional(expr);
      } else if (Take('{')) {
        SkipSpace(nested > 0);
        const uint32_t least = ReadCount();
        uint32_t most = least;
        SkipSpace(nested > 0);
        if (Take(',')) {
          SkipSpace(nested > 0);
          most = Is('}') ? kUnbounded : ReadCount();
          SkipSpace(nested > 0);
        }
        if (!Take('}')) Fail("expected }} after the numbers, not {}", Here());
        if (most < least)
          Fail("{{{},{}}}: expected the second number to be at least the first", least, most);
        expr = syntax_.Repeat(expr, least, most);
      } else {
        return expr;
      }
      SkipSpace(nested > 0);
    }
  }

  uint32_t ReadCount() {
    const size_t begin = at_;
    uint32_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
      if (value > kMostRepeats) Fail("a repetition of more than {}", kMostRepeats);
    }
    if (at_ == begin) Fail("expected a number, not {}", Here());
    return value;
  }

  // One character of a literal or class. `raw_byte`: \xHH of a literal from 80 on is a byte, not a
  // character.
  uint32_t ReadChar(bool& raw_byte) {
    SpendWork(1);
    raw_byte = false;
    if (at_ >= text_.size()) Fail("the text ends in a literal or class");
    if (text_[at_] != '\\') return ReadUtf8();
    ++at_;
    if (at_ >= text_.size()) Fail("the text ends after \\");
    const char kind = text_[at_++];
    switch (kind) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<uint32_t>(kind);
      case 'x':
      case 'u':
      case 'U':
        break;
      default:
        at_ -= 2;
        Fail("unknown escape: expected \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH or \\UHHHHHHHH");
    }
    const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = at_ < text_.size() ? HexValue(text_[at_]) : -1;
      if (digit < 0) Fail("expected {} hexadecimal digits after \\{}", digits, kind);
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    if (value > kLastCodePoint || (value >= 0xd800 && value <= 0xdfff))
      Fail("\\{}: U+{:X} is not a character", kind, value);
    raw_byte = kind == 'x' && value >= 0x80;
    return value;
  }

  uint32_t ReadUtf8() {
    const auto lead = static_cast<uint8_t>(text_[at_]);
    const int following = lead < 0x80       ? 0
                          : lead >> 5 == 6  ? 1
                          : lead >> 4 == 14 ? 2
                          : lead >> 3 == 30 ? 3
                                            : -1;
    uint32_t value = following <= 0 ? lead : lead & (0x3fu >> following);
    bool valid = following >= 0 && at_ + static_cast<size_t>(following) < text_.size();
    for (int i = 1; valid && i <= following; ++i) {
      const auto byte = static_cast<uint8_t>(text_[at_ + static_cast<size_t>(i)]);
      valid = byte >> 6 == 2;
      value = value << 6 | (byte & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (!valid || value < kLeast[following] || value > kLastCodePoint ||
        (value >= 0xd800 && value <= 0xdfff))
      Fail("the text is not UTF-8");
    at_ += static_cast<size_t>(following) + 1;
    return value;
  }

  ExprId ReadAtom() {
    if (TakeAtom(kToken)) return syntax_.Text(ReadQuoted(), Expr::Tokens::kOwn);
    const size_t begin = at_;
    const auto of = [&](std::string_view atom, auto add) {
      const std::string text = ReadQuoted();
      try {
        return add(text);
      } catch (const Error& error) {
        at_ = begin;
        Fail("{}: {}", atom, error.what());
      }
    };
    if (TakeAtom(kRegex))
      return of(kRegex, [this](const std::string& text) {
        return AddRegex(syntax_, text, {.whole = true});
      });
    if (!TakeAtom(kGbnf)) return ReadJson();
    return of(kGbnf, [this](const std::string& text) {
      if (nested_ + 1 == kMostGrammars) throw Error("nested more than {} deep", kMostGrammars);
      return syntax_.Rule(GbnfReader(text, syntax_, nested_ + 1).Run());
    });
  }

  // Takes the name of an atom that a literal follows.
  bool TakeAtom(std::string_view name) {
    if (text_.substr(at_, name.size()) != name) return false;
    at_ += name.size();
    SkipSpace(true);
    if (!Is('"')) Fail("expected a literal after {}, not {}", name, Here());
    return true;
  }

  ExprId ReadLiteral() { return syntax_.Text(ReadQuoted(), Expr::Tokens::kControls); }

  // The bytes of a literal.
  std::string ReadQuoted() {
    ++at_;
    std::string bytes;
    bool raw_byte = false;
    while (!Is('"')) {
      const uint32_t c = ReadChar(raw_byte);
      raw_byte ? bytes += static_cast<char>(c) : (AppendUtf8(bytes, c), bytes);
    }
    ++at_;
    return bytes;
  }

  ExprId ReadClass() {
    ++at_;
    const bool negated = Take('^');
    CodeSet set;
    bool raw_byte = false;  // a class is of characters: \xE9 is U+00E9
    while (!Is(']')) {
      const uint32_t first = ReadChar(raw_byte);
      uint32_t last = first;
      if (Is('-') && text_.substr(at_, 2) != "-]") {
        ++at_;
        last = ReadChar(raw_byte);
        if (last < first) Fail("the class's range ends before it begins");
      }
      set.push_back({first, last});
    }
    ++at_;
    set = Normalised(std::move(set));
    return syntax_.Class(negated ? Complement(set) : std::move(set));
  }

  // %json and the schema, an object or true; where it ends is found by its brackets.
  ExprId ReadJson() {
    if (text_.substr(at_, 5) != "%json") Fail("expected %json, %regex, %gbnf or %token");
    at_ += 5;
    SkipSpace(true);
    const size_t begin = at_;
    size_t end = at_;
    if (Is('{')) {
      size_t open = 0;
      bool in_string = false;
      for (; end < text_.size(); ++end) {
        const char c = text_[end];
        if (in_string) {
          if (c == '\\') ++end;
          in_string = c != '"';
        } else if (c == '"') {
          in_string = true;
        } else if (c == '{' || c == '[') {
          ++open;
        } else if (c == '}' || c == ']') {
          if (--open == 0) break;
        }
      }
      if (end >= text_.size()) Fail("the schema after %json does not end");
      ++end;
    } else {
      while (end < text_.size() && text_[end] >= 'a' && text_[end] <= 'z') ++end;
    }
    nlohmann::ordered_json schema;
    try {
      schema = ParseSchemaText(text_.substr(begin, end - begin));
    } catch (const Error& error) {
      Fail("%json: {}", error.what());
    }
    ExprId expr = 0;
    try {
      expr = AddJsonSchema(syntax_, schema);
    } catch (const Error& error) {
      Fail("%json: {}", error.what());
    }
    at_ = end;
    return expr;
  }

  std::string_view text_;
  size_t at_ = 0;
  Syntax& syntax_;
  const size_t nested_;
  std::map<std::string, Named> rules_;
};

}  // namespace

Syntax ReadGbnf(std::string_view text) {
  Syntax syntax;
  syntax.root = GbnfReader(text, syntax, 0).Run();
  return syntax;
}

std::string GbnfLiteral(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '\n') {
      literal += "\\n";
    } else if (c == '\t') {
      literal += "\\t";
    } else if (c == '\r') {
      literal += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      literal += fmt::format("\\x{:02X}", static_cast<unsigned>(c));
    } else {
      if (c == '"' || c == '\\') literal += '\\';
      literal += c;
    }
  }
  literal += '"';
  return literal;
}

std::string GbnfToken(std::string_view text) { return "%token " + GbnfLiteral(text); }
std::string GbnfOfGrammar(std::string_view gbnf) { return "%gbnf " + GbnfLiteral(gbnf); }
std::string GbnfOfRegex(std::string_view pattern) { return "%regex " + GbnfLiteral(pattern); }

}  // namespace larder::serving::grammar
