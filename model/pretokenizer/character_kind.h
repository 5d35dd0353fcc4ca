// The kind of a character, as the rules of pre-tokenizers tell them apart: Unicode's general
// category, and a few ASCII characters by themselves. Unicode 16, the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace larder::model::inline pretokenizer {

// make_unicode_runs.py reads the names, one a line, in order.
enum class Kind : uint8_t {
  kNone,  // none of the others: controls, formats, private use, unassigned
  kReturn,
  kNewline,
  kTab,
  kBlank,       // U+0020
  kOtherSpace,  // the rest of White_Space
  kAsciiUpper,
  kAsciiLower,
  kUpper,
  kLower,
  kTitle,
  kModifierLetter,
  kOtherLetter,
  kMark,
  kAsciiDigit,
  kDigit,  // Nd beyond ASCII
  kLetterNumber,
  kOtherNumber,
  kLatinNumber,  // No of Latin-1
  kSlash,
  kUnderscore,
  kAsciiPunctuation,  // category P, less / and _
  kConnector,         // Pc beyond ASCII
  kPunctuation,       // the rest of P
  kAsciiSymbol,       // $ + < = > ^ | ~
  kBacktick,
  kAlphabeticSymbol,  // circled letters
  kSymbol,            // the rest of S
};
constexpr int kKinds = 28;

// A set of kinds.
constexpr uint32_t Bit(Kind kind) { return uint32_t{1} << static_cast<int>(kind); }

struct Character {
  char32_t code;
  Kind kind;
  uint8_t bytes;
};

// Kinds by code, 0x110000 of them.
const Kind* KindTable();

// The first character of a text that is UTF-8. `kinds` is KindTable().
inline Character CharacterAt(const char* text, const Kind* kinds) {
  const auto byte = [&](int i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, kinds[lead], 1};
  const auto of = [&](char32_t code, uint8_t bytes) { return Character{code, kinds[code], bytes}; };
  if (lead < 0xE0) return of((lead & 0x1F) << 6 | (byte(1) & 0x3F), 2);
  const char32_t middle = (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (lead < 0xF0) return of((lead & 0xF) << 12 | middle, 3);
  return of((lead & 7) << 18 | middle << 6 | (byte(3) & 0x3F), 4);
}

// The runs of equal kinds in order of code: first code << 8 | kind.
std::span<const uint32_t> UnicodeRuns();

}  // namespace larder::model::pretokenizer
