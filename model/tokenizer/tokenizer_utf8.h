// UTF-8, one step at a time, as strict as Unicode's table 3-7: no surrogates, no overlong forms, nothing
// above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace larder::model {

enum class Utf8Kind { kCharacter, kInvalid, kIncomplete };

struct Utf8Step {
  Utf8Kind kind;
  size_t bytes;   // kInvalid: the longest start of a character that the next byte contradicts (one U+FFFD
                  // stands for it)
  char32_t code;  // of a kCharacter
};

// The first character of `text`, which isn't empty. kIncomplete: all of `text` is the start of a character.
Utf8Step NextUtf8(std::string_view text);

// Appends `code`, which is below 0x110000.
void AppendUtf8(std::string& text, char32_t code);

}  // namespace larder::model
