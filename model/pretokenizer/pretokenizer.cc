#include "model/pretokenizer/pretokenizer.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "model/pretokenizer/utf8.h"

namespace larder::model::inline pretokenizer {
namespace {

using Word = std::function<void(std::string_view)>;

bool InRanges(std::span<const CodeRange> ranges, char32_t code) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](char32_t value, const CodeRange& range) { return value < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

bool Has(const CharacterClass& of, Character character) {
  const bool by_kind = of.kinds >> static_cast<int>(character.kind) & 1;
  if (of.ranges.empty() || by_kind != of.without) return by_kind;
  return InRanges(of.ranges, character.code) != of.without;
}

// The length of the contraction at the start of `text`, which begins with an apostrophe; 0: none.
size_t ContractionBytes(std::string_view text, bool any_case) {
  const auto letter = [&](size_t i) {
    if (i >= text.size()) return '\0';
    return any_case && text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] | 0x20)
                                                        : text[i];
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      // U+017F, the long s, is an s of another case.
      return any_case && text.substr(1).starts_with("\u017F") ? 3 : 0;
  }
}

// The kinds of characters that `rule` may begin with.
uint32_t FirstKinds(const Rule& rule) {
  uint32_t kinds = 0;
  for (const Element& element : rule.elements) {
    switch (element.type) {
      case Element::Type::kEnd:
      case Element::Type::kNoMoreText:
        LARDER_CHECK(false);  // no rule matches nothing
      case Element::Type::kRun:
        kinds |= element.of.ranges.empty() || element.of.without ? element.of.kinds : kAnyKind;
        if (element.min == 0) continue;
        return kinds;
      case Element::Type::kContraction:
        kinds |= Bit(Kind::kAsciiPunctuation);
        if (element.optional) continue;
        return kinds;
      case Element::Type::kSpaceToNewline:
        return kinds | kSpaces;
      case Element::Type::kSpacedWords:
        return kinds | kLetters;
      case Element::Type::kText:
        return kinds | Bit(CharacterAt(element.text.data(), KindTable()).kind);
    }
  }
  return kinds;
}

// The length of the run at the start of `text` that is UTF-8 (`valid`) or is not.
size_t RunLength(std::string_view text, bool valid) {
  size_t length = 0;
  while (length < text.size()) {
    if (static_cast<uint8_t>(text[length]) < 0x80) {
      if (!valid) break;
      ++length;
      continue;
    }
    const Utf8Step step = NextUtf8(text.substr(length));
    if ((step.kind == Utf8Kind::kCharacter) != valid) break;
    length += step.bytes;
  }
  return length;
}

// Matches rules within one word of the stage before.
class Matcher {
 public:
  Matcher(std::string_view text, const Kind* kinds)
      : end_(text.data() + text.size()), kinds_(kinds) {}

  // The end of the match of a rule's elements at `at`; nullptr: none.
  const char* Match(const Element* element, const char* at) {
    switch (element->type) {
      case Element::Type::kEnd:
        return at;
      case Element::Type::kRun:
        return MatchRun(element, at);
      case Element::Type::kContraction: {
        const size_t bytes =
            at != end_ && *at == '\''
                ? ContractionBytes({at, static_cast<size_t>(end_ - at)}, element->any_case)
                : 0;
        if (bytes == 0 && !element->optional) return nullptr;
        return Match(element + 1, at + bytes);  // a rule's last element, so none is given back
      }
      case Element::Type::kNoMoreText:
        if (at != end_ && !(kSpaces >> static_cast<int>(At(at).kind) & 1)) return nullptr;
        return Match(element + 1, at);
      case Element::Type::kSpaceToNewline: {
        FindSpace(at);
        return space_newline_ > at ? Match(element + 1, space_newline_) : nullptr;
      }
      case Element::Type::kSpacedWords:
        return Match(element + 1, SpacedWordsEnd(at));
      case Element::Type::kText:
        if (!std::string_view(at, static_cast<size_t>(end_ - at)).starts_with(element->text))
          return nullptr;
        return Match(element + 1, at + element->text.size());
    }
    return nullptr;
  }

 private:
  Character At(const char* at) const { return CharacterAt(at, kinds_); }

  const char* MatchRun(const Element* element, const char* at) {
    const char* to = at;
    uint32_t count = 0;
    while (count < element->max && to != end_) {
      const Character character = At(to);
      if (!Has(element->of, character)) break;
      to += character.bytes;
      ++count;
    }
    if (count < element->min) return nullptr;
    if (element[1].type == Element::Type::kEnd) return to;
    // Gives characters back, one by one. What follows a run fails at its first character or not at
    // all, so this is linear in the run.
    for (;;) {
      if (const char* end = Match(element + 1, to)) return end;
      if (count == element->min) return nullptr;
      do --to;
      while ((*to & 0xC0) == 0x80);
      --count;
    }
  }

  // Sets space_end_ and space_newline_ for the white space that `at` is in. Rules ask at one place
  // after another of the same white space, so it is remembered.
  void FindSpace(const char* at) {
    if (space_end_ != nullptr && at < space_end_ && at >= space_begin_) return;
    space_begin_ = at;
    space_newline_ = nullptr;
    while (at != end_) {
      const Character character = At(at);
      if (!(kSpaces >> static_cast<int>(character.kind) & 1)) break;
      at += character.bytes;
      if (character.kind == Kind::kNewline || character.kind == Kind::kReturn) space_newline_ = at;
    }
    space_end_ = at;
  }

  // Returns nullptr, which matches nothing, unless there is a letter.
  const char* SpacedWordsEnd(const char* at) const {
    const auto is = [&](const char* where, uint32_t kinds) {
      return where != end_ && (kinds >> static_cast<int>(At(where).kind) & 1);
    };
    if (!is(at, kLetters)) return nullptr;
    for (;;) {
      if (is(at, kLetters | kMarks)) {
        at += At(at).bytes;
      } else if (is(at, Bit(Kind::kBlank)) && is(at + 1, kLetters)) {
        ++at;
      } else {
        return at;
      }
    }
  }

  const char* end_;
  const Kind* kinds_;
  const char* space_begin_ = nullptr;
  const char* space_end_ = nullptr;
  const char* space_newline_ = nullptr;  // behind the last line break
};

}  // namespace

// One call of Split: cuts UTF-8 by the stages in order.
class PreTokenizer::Run {
 public:
  Run(const PreTokenizer& of, const Word& word)
      : stages_(of.family_.stages), starts_(of.starts_), word_(word) {}

  void Cut(size_t stage, std::string_view text) const {
    if (text.empty()) return;
    if (stage == stages_.size()) return word_(text);
    switch (stages_[stage].type) {
      case Stage::Type::kFirstOf:
        return CutByRules(stage, text);
      case Stage::Type::kSpaceAtEnd:
        return CutSpaceAtEnd(stage, text);
      case Stage::Type::kDigitGroups:
      case Stage::Type::kDigitsOfWords:
      case Stage::Type::kCutInDigits:
        return CutDigits(stage, text);
    }
  }

 private:
  void Emit(size_t stage, const char* begin, const char* end) const {
    Cut(stage + 1, {begin, static_cast<size_t>(end - begin)});
  }

  void CutByRules(size_t stage, std::string_view text) const {
    const Rule* rules = stages_[stage].rules.data();
    const Starts& starts = starts_[stage];
    Matcher matcher(text, kinds_);
    const char* between = text.data();  // where text that no rule matches begins
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
      const Character first = CharacterAt(at, kinds_);
      const char* matched = nullptr;
      for (uint32_t left = starts[static_cast<size_t>(first.kind)]; left != 0; left &= left - 1) {
        matched = matcher.Match(rules[std::countr_zero(left)].elements.data(), at);
        if (matched != nullptr) break;
      }
      if (matched == nullptr) {
        at += first.bytes;
        continue;
      }
      Emit(stage, between, at);
      Emit(stage, at, matched);
      between = at = matched;
    }
    Emit(stage, between, end);
  }

  void CutSpaceAtEnd(size_t stage, std::string_view text) const {
    const char* space = text.data() + text.size();
    for (const char* at = space; at != text.data();) {
      do --at;
      while ((*at & 0xC0) == 0x80);
      if (!(kSpaces >> static_cast<int>(CharacterAt(at, kinds_).kind) & 1)) break;
      space = at;
    }
    Emit(stage, text.data(), space);
    Emit(stage, space, text.data() + text.size());
  }

  void CutDigits(size_t stage, std::string_view text) const {
    const Stage& of = stages_[stage];
    const bool apart = of.type != Stage::Type::kCutInDigits;
    const char* between = text.data();
    const char* const end = between + text.size();
    for (const char* at = between; at != end;) {
      const char* const begin = at;
      size_t count = 0;
      while (at != end) {
        const Character character = CharacterAt(at, kinds_);
        if (!Has(of.digits, character)) break;
        at += character.bytes;
        ++count;
      }
      if (count == 0) {
        at += CharacterAt(at, kinds_).bytes;
        continue;
      }
      if (of.type == Stage::Type::kDigitsOfWords && at != end &&
          kWordCharacters >> static_cast<int>(CharacterAt(at, kinds_).kind) & 1)
        continue;
      const char* digit = begin;
      for (size_t left = count; left > 0; --left) {
        if (left % 3 == 0 || (apart && left == count)) {
          Emit(stage, between, digit);
          between = digit;
        }
        digit += CharacterAt(digit, kinds_).bytes;
      }
      if (!apart) continue;
      Emit(stage, between, at);
      between = at;
    }
    Emit(stage, between, end);
  }

  const std::span<const Stage> stages_;
  const std::vector<Starts>& starts_;
  const Word& word_;
  const Kind* const kinds_ = KindTable();
};

const Family& FindFamily(std::string_view name, std::string_view source) {
  std::string known;
  for (const Family& family : Families()) {
    if (family.name == name) return family;
    known += known.empty() ? "" : ", ";
    known += family.name;
  }
  throw Error(
      "{}: key 'tokenizer.ggml.pre' is '{}', a pre-tokenizer that Larder does not know; convert "
      "the model again with one of: {}",
      source, name, known);
}

PreTokenizer::PreTokenizer(std::string_view name, std::string_view source)
    : family_(FindFamily(name, source)) {
  for (const Stage& stage : family_.stages) {
    Starts& starts = starts_.emplace_back();
    LARDER_CHECK(stage.rules.size() <= 32);
    for (size_t i = 0; i < stage.rules.size(); ++i) {
      const uint32_t first = FirstKinds(stage.rules[i]);
      for (int kind = 0; kind < kKinds; ++kind)
        starts[static_cast<size_t>(kind)] |= (first >> kind & 1) << i;
    }
  }
}

void PreTokenizer::Split(std::string_view text, const Word& word) const {
  const Run run(*this, word);
  while (!text.empty()) {
    const size_t valid = RunLength(text, true);
    run.Cut(0, text.substr(0, valid));
    text.remove_prefix(valid);
    const size_t invalid = RunLength(text, false);
    if (invalid > 0) word(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

}  // namespace larder::model::pretokenizer
