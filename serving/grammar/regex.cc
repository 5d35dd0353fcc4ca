#include "serving/grammar/regex.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/work.h"

namespace larder::serving::inline grammar {
namespace {

constexpr size_t kMostPatternBytes = 64 << 10;
constexpr size_t kMostPatternGroups = 100;
constexpr uint32_t kMostQuantity = 1'000'000;
constexpr uint64_t kLong = kUnbounded;  // lengths of this and more are not told apart

const CodeSet kEverything = {{0, kLastCodePoint}};
const CodeSet kDigits = {{'0', '9'}};
const CodeSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// Without what other implementations count as white space besides, so that neither it nor its
// complement depends on them.
const CodeSet kSpace = {{'\t', '\r'}, {' ', ' '}};
const CodeSet kAscii = {{' ', '~'}};

// A piece of a pattern and how many characters it has.
struct Part {
  ExprId expr;
  uint64_t least, most;
  // The piece is `each`, of one character, so many times.
  bool repeats = false;
  ExprId each = 0;
};

class RegexReader {
 public:
  // `counts`: each character counts, for a limit around it all.
  RegexReader(Syntax& syntax, std::string_view text, const RegexOptions& options, bool counts)
      : syntax_(syntax), text_(text), options_(options), counts_(counts) {
    if (text.size() > kMostPatternBytes)
      throw Error("the pattern has {} bytes: expected at most {}", text.size(), kMostPatternBytes);
  }

  // Whether the length depends on more than one part of the pattern.
  bool wants_counts() const { return wants_counts_; }

  ExprId Run() {
    std::vector<ExprId> ways;
    do {
      ways.push_back(ReadBranch());
    } while (Take('|'));
    if (at_ < text_.size()) Fail("a ) without (");
    return syntax_.Choice(ways);
  }

 private:
  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("{} at character {} of the pattern",
                fmt::format(format, std::forward<Args>(args)...), at_ + 1);
  }
  bool Is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Take(char c) {
    if (!Is(c)) return false;
    ++at_;
    return true;
  }
  bool TakeText(std::string_view text) {
    if (text_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  ExprId Char(const CodeSet& set) {
    const ExprId one = AddChar(syntax_, set, options_.form);
    return counts_ ? syntax_.Sequence({syntax_.Count(), one}) : one;
  }
  Part One(const CodeSet& set) {
    const ExprId expr = Char(set);
    return {expr, 1, 1, true, expr};
  }
  Part Anything() {
    const ExprId one = Char(kEverything);
    return {syntax_.Repeat(one, 0, kUnbounded), 0, kLong, true, one};
  }

  // A way through the whole pattern: it may have anchors.
  ExprId ReadBranch() {
    std::vector<Part> parts;
    bool begins = options_.whole, ends = options_.whole;
    while (Take('^')) begins = true;
    if (!begins) parts.push_back(Anything());
    ReadParts(parts, 0);
    while (Take('$')) ends = true;
    if (!ends) parts.push_back(Anything());
    if (at_ < text_.size() && !Is('|') && !Is(')'))
      Fail("an anchor inside the pattern is not supported");
    return Bounded(parts);
  }

  // The sequence of the parts, with options_' number of characters.
  ExprId Bounded(const std::vector<Part>& parts) {
    uint64_t least = 0, most = 0;
    for (const Part& part : parts) {
      least = std::min(kLong, least + part.least);
      most = std::min(kLong, most + part.most);
    }
    std::vector<ExprId> exprs;
    exprs.reserve(parts.size());
    for (const Part& part : parts) exprs.push_back(part.expr);
    const bool short_enough = options_.most == kUnbounded || most <= options_.most;
    if (least >= options_.least && short_enough) return syntax_.Sequence(exprs);
    if (least > options_.most || (most < kLong && most < options_.least)) return syntax_.Never();
    if (counts_) return syntax_.Sequence(exprs);
    // If one part alone varies, it has what the others leave.
    size_t varies = parts.size();
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].least == parts[i].most && parts[i].most < kLong) continue;
      if (varies < parts.size() || !parts[i].repeats) {
        wants_counts_ = true;
        return syntax_.Never();
      }
      varies = i;
    }
    const Part& part = parts[varies];
    const uint64_t fixed = least - part.least;
    const uint64_t low = std::max(part.least, options_.least > fixed ? options_.least - fixed : 0);
    const uint64_t high = options_.most == kUnbounded
                              ? part.most
                              : std::min<uint64_t>(part.most, options_.most - fixed);
    if (low > high) return syntax_.Never();
    exprs[varies] =
        syntax_.Repeat(part.each, static_cast<uint32_t>(low), static_cast<uint32_t>(high));
    return syntax_.Sequence(exprs);
  }

  void ReadParts(std::vector<Part>& parts, size_t nested) {
    while (at_ < text_.size() && !Is('|') && !Is(')') && !Is('$'))
      parts.push_back(ReadQuantified(nested));
  }

  Part ReadGroup(size_t nested) {
    if (nested == kMostPatternGroups) Fail("groups nested more than {} deep", kMostPatternGroups);
    if (TakeText("?")) {
      if (TakeText("<") && !Is('=') && !Is('!')) {
        while (at_ < text_.size() && !Is('>')) ++at_;
        if (!Take('>')) Fail("a group's name that does not end");
      } else if (!TakeText(":")) {
        Fail("look-around or a flag is not supported");
      }
    }
    std::vector<ExprId> ways;
    uint64_t least = kLong, most = 0;
    do {
      std::vector<Part> parts;
      ReadParts(parts, nested + 1);
      if (Is('$')) Fail("an anchor inside the pattern is not supported");
      std::vector<ExprId> exprs;
      uint64_t low = 0, high = 0;
      for (const Part& part : parts) {
        exprs.push_back(part.expr);
        low = std::min(kLong, low + part.least);
        high = std::min(kLong, high + part.most);
      }
      ways.push_back(syntax_.Sequence(exprs));
      least = std::min(least, low);
      most = std::max(most, high);
    } while (Take('|'));
    if (!Take(')')) Fail("a ( without )");
    const ExprId expr = syntax_.Choice(ways);
    return {expr, least, most, least == 1 && most == 1, expr};
  }

  Part ReadQuantified(size_t nested) {
    Part part = ReadAtom(nested);
    uint32_t least = 0, most = 0;
    if (!ReadQuantifier(least, most)) return part;
    const bool one = part.repeats && part.least == 1 && part.most == 1;
    part.expr = syntax_.Repeat(part.expr, least, most);
    part.least = std::min(kLong, part.least * least);
    part.most = most == kUnbounded && part.most > 0 ? kLong : std::min(kLong, part.most * most);
    part.repeats = one;
    if (ReadQuantifier(least, most)) Fail("a quantifier that follows another quantifier");
    return part;
  }

  bool ReadQuantifier(uint32_t& least, uint32_t& most) {
    least = 0;
    most = kUnbounded;
    if (Take('?')) {
      most = 1;
    } else if (Take('+')) {
      least = 1;
    } else if (!Take('*')) {
      const size_t begin = at_;
      if (!Take('{') || !ReadCount(least)) {
        at_ = begin;
        return false;
      }
      most = least;
      if (Take(',') && !ReadCount(most)) most = kUnbounded;
      if (!Take('}')) {
        at_ = begin;
        return false;
      }
      if (most < least) Fail("a repetition whose second number is less than the first");
    }
    Take('?');  // lazy: the same texts match
    return true;
  }
  bool ReadCount(uint32_t& value) {
    const size_t begin = at_;
    uint32_t count = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      count = count * 10 + static_cast<uint32_t>(text_[at_++] - '0');
      if (count > kMostQuantity) Fail("a repetition of more than {}", kMostQuantity);
    }
    if (at_ == begin) return false;
    value = count;
    return true;
  }

  Part ReadAtom(size_t nested) {
    if (Take('(')) return ReadGroup(nested);
    if (Take('.')) return One(Complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (Take('[')) return One(ReadClass());
    if (Is('^')) Fail("an anchor inside the pattern is not supported");
    if (Is('*') || Is('+') || Is('?')) Fail("a quantifier without anything before it");
    return One(ReadClassAtom(false));
  }

  CodeSet ReadClass() {
    const bool negated = Take('^');
    CodeSet set;
    while (!Is(']')) {
      const CodeSet first = ReadClassAtom(true);
      const bool single = first.size() == 1 && first[0].first == first[0].last;
      if (single && Is('-') && text_.substr(at_, 2) != "-]") {
        ++at_;
        const CodeSet last = ReadClassAtom(true);
        if (last.size() != 1 || last[0].first != last[0].last || last[0].first < first[0].first)
          Fail("a range in a class whose end is not a character, or is before its start");
        set.push_back({first[0].first, last[0].first});
      } else {
        set.insert(set.end(), first.begin(), first.end());
      }
    }
    ++at_;
    set = Normalised(std::move(set));
    return negated ? Complement(set) : set;
  }

  CodeSet ReadClassAtom(bool in_class) {
    SpendWork(2);
    if (in_class && at_ >= text_.size()) Fail("a [ without ]");
    if (!Is('\\')) return Single(ReadUtf8());
    ++at_;
    if (at_ >= text_.size()) Fail("a lone \\ at the end");
    const char kind = text_[at_++];
    switch (kind) {
      case 'd':
        return kDigits;
      case 'D':
        return Intersection(Complement(kDigits), kAscii);
      case 'w':
        return kWord;
      case 'W':
        return Intersection(Complement(kWord), kAscii);
      case 's':
        return kSpace;
      case 'S':
        return Intersection(Complement(kSpace), kAscii);
      case 'n':
        return Single('\n');
      case 'r':
        return Single('\r');
      case 't':
        return Single('\t');
      case 'f':
        return Single('\f');
      case 'v':
        return Single('\v');
      case '0':
        return Single(0);
      case 'x':
        return Single(ReadHex(2));
      case 'u': {
        if (!Take('{')) return Single(ReadHex(4));
        uint32_t value = 0;
        while (!Take('}')) {
          value = value << 4 | ReadHex(1);
          if (value > kLastCodePoint) Fail("a character beyond U+10FFFF");
        }
        return Single(value);
      }
      case 'b':
        if (in_class) return Single('\b');
        break;
      default:
        break;
    }
    const bool letter_or_digit = (kind >= '0' && kind <= '9') || (kind >= 'A' && kind <= 'Z') ||
                                 (kind >= 'a' && kind <= 'z');
    if (letter_or_digit || static_cast<uint8_t>(kind) >= 0x80) {
      --at_;
      Fail("the escape \\{} is not supported", kind);
    }
    return Single(static_cast<uint32_t>(kind));
  }
  static CodeSet Single(uint32_t c) { return {{c, c}}; }

  uint32_t ReadHex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      constexpr std::string_view kHex = "0123456789abcdef";
      const size_t digit =
          at_ < text_.size() ? kHex.find(static_cast<char>(text_[at_] | 0x20)) : kHex.npos;
      if (digit == kHex.npos) Fail("{} hexadecimal digits are missing", digits - i);
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    return value;
  }
  // The pattern comes out of JSON, so it is UTF-8; what is not is taken byte by byte.
  uint32_t ReadUtf8() {
    const auto lead = static_cast<uint8_t>(text_[at_++]);
    int following = lead < 0xc0 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    uint32_t value = following == 0 ? lead : lead & (0x3fu >> following);
    for (; following > 0 && at_ < text_.size(); --following)
      value = value << 6 | (text_[at_++] & 0x3f);
    return std::min(value, kLastCodePoint);
  }

  Syntax& syntax_;
  std::string_view text_;
  size_t at_ = 0;
  const RegexOptions options_;
  const bool counts_;
  bool wants_counts_ = false;
};

}  // namespace

ExprId AddChar(Syntax& syntax, const CodeSet& set, TextForm form) {
  if (form == TextForm::kPlain) return syntax.Class(set);
  std::vector<ExprId> ways = {
      syntax.Class(Intersection(set, {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, kLastCodePoint}}))};
  for (const CodeRange range : Intersection(set, {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}})) {
    for (uint32_t c = range.first; c <= range.last; ++c) {
      constexpr std::array<std::pair<char, char>, 7> kShort = {{{'\b', 'b'},
                                                                {'\f', 'f'},
                                                                {'\n', 'n'},
                                                                {'\r', 'r'},
                                                                {'\t', 't'},
                                                                {'"', '"'},
                                                                {'\\', '\\'}}};
      const auto known = std::find_if(kShort.begin(), kShort.end(), [&](auto pair) {
        return static_cast<uint32_t>(pair.first) == c;
      });
      ways.push_back(syntax.Text(known != kShort.end() ? std::string{'\\', known->second}
                                                       : fmt::format("\\u{:04x}", c)));
    }
  }
  return syntax.Choice(ways);
}

ExprId AddRegex(Syntax& syntax, std::string_view pattern, const RegexOptions& options) {
  RegexReader reader(syntax, pattern, options, /*counts=*/false);
  const ExprId expr = reader.Run();
  if (!reader.wants_counts()) return expr;
  if (options.least > kMostLimit)
    throw Error("a pattern of this form together with minLength of more than {} is not supported",
                kMostLimit);
  RegexOptions shorter = options;  // a text of fewer characters is within the limit, too
  if (options.most != kUnbounded) shorter.most = std::min(options.most, kMostLimit);
  return syntax.Limit(RegexReader(syntax, pattern, shorter, /*counts=*/true).Run(), shorter.least,
                      shorter.most);
}

}  // namespace larder::serving::grammar
