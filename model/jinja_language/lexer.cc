#include "model/jinja_language/lexer.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "model/jinja_language/text.h"

namespace larder::model::inline jinja_language {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}
bool IsNameChar(char c) { return IsNameStart(c) || IsDigit(c); }

// Line ends of any system become \n; one at the end goes away.
std::string Normalised(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalised(source)), text_(source_) {}

  std::vector<Token> Run() {
    while (at_ < text_.size()) Data();
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Fail(std::string text) const { throw SyntaxError{line_, std::move(text)}; }

  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  bool At(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  void MoveTo(size_t to) {
    line_ += static_cast<uint32_t>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                              text_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
    line_starting_ = to > 0 && text_[to - 1] == '\n';
  }

  void SkipSpaceHere() { MoveTo(SkipSpace(text_, at_, text_.size())); }

  // Text until the next tag, without the white space that the tag removes before it.
  void Data() {
    size_t tag = at_;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == text_.npos || tag + 1 >= text_.size()) {
        Add(TokenKind::kData, std::string(text_.substr(at_)));
        MoveTo(text_.size());
        return;
      }
      if (text_[tag + 1] == '{' || text_[tag + 1] == '%' || text_[tag + 1] == '#') break;
      ++tag;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    size_t end = tag;
    if (sign == '-') {
      end = SkipSpaceBack(text_, at_, tag);
    } else if (sign != '+' && kind != '{') {
      const size_t newline = text_.substr(at_, tag - at_).rfind('\n');
      if (newline != text_.npos || line_starting_) {
        const size_t line = newline == text_.npos ? at_ : at_ + newline + 1;
        if (SkipSpace(text_, line, tag) == tag) end = line;
      }
    }
    if (end > at_) Add(TokenKind::kData, std::string(text_.substr(at_, end - at_)));
    MoveTo(tag + (sign == '-' || sign == '+' ? 3 : 2));
    if (kind == '#') return Comment();
    if (kind == '%' && Raw()) return;
    Add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    Tag(kind == '%');
  }

  // The end of a block or comment, at which we are: white space or a line end behind it goes away.
  void EndTag(size_t sign_bytes, bool trim_newline) {
    const bool minus = sign_bytes == 1 && text_[at_] == '-';
    const bool plus = sign_bytes == 1 && text_[at_] == '+';
    MoveTo(at_ + sign_bytes + 2);
    if (minus) {
      SkipSpaceHere();
    } else if (!plus && trim_newline && at_ < text_.size() && text_[at_] == '\n') {
      MoveTo(at_ + 1);
    }
  }

  void Comment() {
    if (at_ == text_.size()) return;  // nothing behind it: Jinja2 does not mind
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) Fail("Missing end of comment tag");
    const bool sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
    MoveTo(sign ? end - 1 : end);
    EndTag(sign ? 1 : 0, true);
  }

  // {% raw %}...{% endraw %}, behind whose "{%" we are.
  bool Raw() {
    size_t i = SkipSpace(text_, at_, text_.size());
    if (!text_.substr(i).starts_with("raw")) return false;
    i = SkipSpace(text_, i + 3, text_.size());
    const bool minus = text_.substr(i).starts_with("-%}");
    if (!minus && !text_.substr(i).starts_with("%}")) return false;
    MoveTo(i);
    EndTag(minus ? 1 : 0, false);
    for (size_t from = at_;;) {
      const size_t tag = text_.find("{%", from);
      if (tag == text_.npos) Fail("Missing end of raw directive");
      from = tag + 2;
      const char sign = from < text_.size() ? text_[from] : '\0';
      size_t word = SkipSpace(text_, from + (sign == '-' || sign == '+' ? 1 : 0), text_.size());
      if (!text_.substr(word).starts_with("endraw")) continue;
      word = SkipSpace(text_, word + 6, text_.size());
      const bool signed_end = word < text_.size() && (text_[word] == '-' || text_[word] == '+');
      if (!text_.substr(word + (signed_end ? 1 : 0)).starts_with("%}")) continue;
      size_t end = tag;
      if (sign == '-') {
        end = SkipSpaceBack(text_, at_, tag);
      } else if (sign != '+') {
        const size_t newline = text_.substr(at_, tag - at_).rfind('\n');
        if (newline != text_.npos || line_starting_) {
          const size_t line = newline == text_.npos ? at_ : at_ + newline + 1;
          if (SkipSpace(text_, line, tag) == tag) end = line;
        }
      }
      if (end > at_) Add(TokenKind::kData, std::string(text_.substr(at_, end - at_)));
      MoveTo(word);
      EndTag(signed_end ? 1 : 0, true);
      return true;
    }
  }

  void Tag(bool block) {
    const TokenKind end = block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd;
    std::string brackets;
    while (true) {
      SkipSpaceHere();
      if (at_ >= text_.size())
        Fail(block ? "a tag '{%' is not closed" : "a tag '{{' is not closed");
      if (brackets.empty()) {
        const bool sign = text_[at_] == '-' || (block && text_[at_] == '+');
        if (text_.substr(at_ + (sign ? 1 : 0)).starts_with(block ? "%}" : "}}")) {
          Add(end, "");
          EndTag(sign ? 1 : 0, block);
          return;
        }
      }
      const char c = text_[at_];
      if (IsDigit(c)) {
        Number();
      } else if (IsNameStart(c)) {
        size_t to = at_;
        while (to < text_.size() && IsNameChar(text_[to])) ++to;
        Add(TokenKind::kName, std::string(text_.substr(at_, to - at_)));
        MoveTo(to);
      } else if (c == '\'' || c == '"') {
        String(c);
      } else {
        Operator(&brackets);
      }
    }
  }

  void Operator(std::string* brackets) {
    for (const char* two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (At(two)) {
        Add(TokenKind::kOperator, two);
        MoveTo(at_ + 2);
        return;
      }
    }
    const char c = text_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      Fail("unexpected character " + std::string(text_.substr(at_, CharBytes(text_, at_))));
    if (c == '(') *brackets += ')';
    if (c == '[') *brackets += ']';
    if (c == '{') *brackets += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets->empty()) Fail(std::string("unexpected '") + c + "'");
      if (brackets->back() != c)
        Fail(std::string("unexpected '") + c + "', expected '" + brackets->back() + "'");
      brackets->pop_back();
    }
    Add(TokenKind::kOperator, std::string(1, c));
    MoveTo(at_ + 1);
  }

  size_t Digits(size_t from) const {
    while (from < text_.size() &&
           (IsDigit(text_[from]) ||
            (text_[from] == '_' && from + 1 < text_.size() && IsDigit(text_[from + 1]))))
      ++from;
    return from;
  }

  void Number() {
    std::string number;
    size_t to = Digits(at_);
    bool real = false;
    // After a dot it is an index ("a.0.1"), not a fraction.
    const bool index = at_ > 0 && text_[at_ - 1] == '.';
    if (to == at_ + 1 && text_[at_] == '0' && to + 1 < text_.size() &&
        std::string_view("xXoObB").find(text_[to]) != std::string_view::npos) {
      for (++to; to < text_.size() &&
                 (std::isxdigit(static_cast<uint8_t>(text_[to])) || text_[to] == '_');)
        ++to;
    } else if (!index) {
      if (to + 1 < text_.size() && text_[to] == '.' && IsDigit(text_[to + 1])) {
        to = Digits(to + 1);
        real = true;
      }
      if (to < text_.size() && (text_[to] == 'e' || text_[to] == 'E')) {
        size_t exponent = to + 1;
        if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-'))
          ++exponent;
        if (exponent < text_.size() && IsDigit(text_[exponent])) {
          to = Digits(exponent);
          real = true;
        }
      }
    }
    for (const char c : text_.substr(at_, to - at_)) {
      if (c != '_') number += c;
    }
    Add(real ? TokenKind::kFloat : TokenKind::kInteger, number);
    MoveTo(to);
  }

  void String(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) Fail("a string is not closed");
    Add(TokenKind::kString, Unescaped(text_.substr(at_ + 1, end - at_ - 1)));
    MoveTo(end + 1);
  }

  std::string Unescaped(std::string_view raw) const {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out += raw[i];
        continue;
      }
      const char c = raw[++i];
      const auto hex = [&](size_t digits) {
        const std::string text(raw.substr(i + 1, digits));
        char* end = nullptr;
        const auto code = static_cast<uint32_t>(std::strtoul(text.c_str(), &end, 16));
        if (text.size() != digits || end != text.c_str() + digits || code > 0x10FFFF)
          Fail(std::string("a string has a wrong \\") + c + " escape");
        AppendChar(out, code);
        i += digits;
      };
      constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t known = kFrom.find(c); known != kFrom.npos) {
        out += kTo[known];
      } else if (c == 'x') {
        hex(2);
      } else if (c == 'u') {
        hex(4);
      } else if (c == 'U') {
        hex(8);
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t digits = 0;
        for (; digits < 3 && i + digits < raw.size() && raw[i + digits] >= '0' &&
               raw[i + digits] <= '7';
             ++digits)
          code = code * 8 + static_cast<uint32_t>(raw[i + digits] - '0');
        AppendChar(out, code);
        i += digits - 1;
      } else if (c != '\n') {
        out += {'\\', c};
      }
    }
    return out;
  }

  const std::string source_;
  const std::string_view text_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) { return Lexer(source).Run(); }

}  // namespace larder::model::jinja_language
