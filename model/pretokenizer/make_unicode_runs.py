#!/usr/bin/env python3
"""Writes unicode_runs.cc: the characters of Unicode 16 by kind, as runs.

    python3 -m venv ~/u && ~/u/bin/pip install unicodedata2==16.0.0 && ~/u/bin/python
        make_unicode_runs.py

16 is the version of Oniguruma in Hugging Face's tokenizers, whose ids ours must equal: not that of
any library of Debian's.
"""
import pathlib

import unicodedata2

HERE = pathlib.Path(__file__).parent
WHITE_SPACE = {
    *range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
    0x205F, 0x3000
}
# Symbols with the property Alphabetic: circled and squared letters. They are characters of words
# for \b.
ALPHABETIC_SYMBOLS = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
                      *range(0x1F170, 0x1F18A)}
# Oniguruma's \w has them, though no other number No
LATIN_1_NUMBERS = {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}
BY_CATEGORY = {
    "Lu": "kUpper", "Ll": "kLower", "Lt": "kTitle", "Lm": "kModifierLetter", "Lo": "kOtherLetter",
    "Mn": "kMark", "Mc": "kMark", "Me": "kMark", "Nd": "kDigit", "Nl": "kLetterNumber",
    "No": "kOtherNumber", "Pc": "kConnector",
}
BY_FIRST_LETTER = {"P": "kPunctuation", "S": "kSymbol"}
ASCII = {
    "\r": "kReturn", "\n": "kNewline", "\t": "kTab", " ": "kBlank", "/": "kSlash",
    "_": "kUnderscore", "`": "kBacktick"
}


def kind(code):
    character = chr(code)
    category = unicodedata2.category(character)
    if code < 0x80 and character in ASCII:
        return ASCII[character]
    if code in WHITE_SPACE:
        return "kOtherSpace"
    if code < 0x80:
        by_ascii = {"Lu": "kAsciiUpper", "Ll": "kAsciiLower", "Nd": "kAsciiDigit"}.get(category)
        return by_ascii or {"P": "kAsciiPunctuation", "S": "kAsciiSymbol"}.get(category[0], "kNone")
    if code in LATIN_1_NUMBERS:
        return "kLatinNumber"
    if code in ALPHABETIC_SYMBOLS:
        return "kAlphabeticSymbol"
    return BY_CATEGORY.get(category) or BY_FIRST_LETTER.get(category[0], "kNone")


def main():
    assert unicodedata2.unidata_version == "16.0.0"
    header = (HERE / "character_kind.h").read_text()
    names = [
        line.strip().split(",")[0]
        for line in header.split("enum class Kind")[1].split("{")[1].split("}")[0].splitlines()
        if line.strip().startswith("k")
    ]
    runs = []
    for code in range(0x110000):
        number = names.index(kind(code))
        if not runs or runs[-1] & 0xFF != number:
            runs.append(code << 8 | number)
    lines = [", ".join(f"0x{run:X}" for run in runs[i:i + 9]) + "," for i in range(0, len(runs), 9)]
    (HERE / "unicode_runs.cc").write_text(f"""\
// Made by make_unicode_runs.py from Unicode {unicodedata2.unidata_version}'s character database.
#include "model/pretokenizer/character_kind.h"

namespace larder::model::inline pretokenizer {{

// clang-format off
constexpr uint32_t kRuns[] = {{
{chr(10).join(lines)}
}};
// clang-format on

std::span<const uint32_t> UnicodeRuns() {{ return kRuns; }}

}}  // namespace larder::model::pretokenizer
""")


if __name__ == "__main__":
    main()
