// The rules by which pre-tokenizers cut text, as data: a family is a list of stages, a stage a list
// of rules, a rule a list of elements. Families publish them as regular expressions; an element is
// what these have in common. All of it is constant.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "model/pretokenizer/character_kind.h"

namespace larder::model::inline pretokenizer {

struct CodeRange {
  char32_t first, last;
};

// Characters of the kinds and of the ranges, or (`without`) of the kinds less the ranges. Ranges
// are in order.
struct CharacterClass {
  uint32_t kinds = 0;
  std::span<const CodeRange> ranges = {};
  bool without = false;
};

struct Element {
  enum class Type : uint8_t {
    kEnd,             // end of the rule
    kRun,             // characters of a class, `min` to `max` of them, as many as possible
    kContraction,     // 's 't 're 've 'm 'll 'd
    kNoMoreText,      // nothing, before white space or the end of the text
    kSpaceToNewline,  // white space up to the last line break in it
    kSpacedWords,     // a letter; then letters, marks, and single spaces before a letter
    kText,            // as it is written
  };
  Type type = Type::kEnd;
  CharacterClass of = {};
  uint32_t min = 0, max = 0;
  bool optional = false, any_case = false;  // kContraction
  std::string_view text = {};
};

// Matches where its elements do, one after the other. As in a regular expression an earlier run
// gives characters back if the rest does not match otherwise.
struct Rule {
  std::array<Element, 8> elements = {};
  template <typename... Elements>
  constexpr explicit Rule(Elements... of) : elements{of...} {
    static_assert(sizeof...(of) < std::tuple_size_v<decltype(elements)>);  // the last is kEnd
  }
};

// A stage cuts each word of the stage before it, as if that word were a text of its own.
struct Stage {
  enum class Type : uint8_t {
    kFirstOf,        // words are the matches of the rules (at each place the first rule that
                     // matches) and the text between matches
    kSpaceAtEnd,     // the white space at the text's end is a word
    kDigitGroups,    // runs of `digits` are words of three, the first of what is left
    kDigitsOfWords,  // the same, but a word may not end where a character of a word follows
    kCutInDigits,    // cuts in front of each three digits, counted from a run's end; nowhere else
  };
  Type type = Type::kFirstOf;
  std::span<const Rule> rules = {};
  CharacterClass digits = {};
  constexpr Stage(std::span<const Rule> of) : rules(of) {}
  constexpr explicit Stage(Type of, CharacterClass of_digits = {}) : type(of), digits(of_digits) {}
};

struct Family {
  std::string_view name;  // tokenizer.ggml.pre
  std::span<const Stage> stages;
  bool ignore_merges = false;
  bool add_bos = false;  // if the file does not say
};

std::span<const Family> Families();

constexpr uint32_t kSpaces = Bit(Kind::kReturn) | Bit(Kind::kNewline) | Bit(Kind::kTab) |
                             Bit(Kind::kBlank) | Bit(Kind::kOtherSpace);
constexpr uint32_t kMarks = Bit(Kind::kMark);
constexpr uint32_t kLetters = Bit(Kind::kAsciiUpper) | Bit(Kind::kAsciiLower) | Bit(Kind::kUpper) |
                              Bit(Kind::kLower) | Bit(Kind::kTitle) | Bit(Kind::kModifierLetter) |
                              Bit(Kind::kOtherLetter);
constexpr uint32_t kDigits = Bit(Kind::kAsciiDigit) | Bit(Kind::kDigit);
constexpr uint32_t kNumbers =
    kDigits | Bit(Kind::kLetterNumber) | Bit(Kind::kOtherNumber) | Bit(Kind::kLatinNumber);
// Oniguruma's \w.
constexpr uint32_t kWordCharacters = kLetters | kMarks | kDigits | Bit(Kind::kLetterNumber) |
                                     Bit(Kind::kLatinNumber) | Bit(Kind::kUnderscore) |
                                     Bit(Kind::kConnector) | Bit(Kind::kAlphabeticSymbol);
constexpr uint32_t kAnyKind = (uint32_t{1} << kKinds) - 1;

}  // namespace larder::model::pretokenizer
