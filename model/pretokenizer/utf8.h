// Decodes UTF-8 one character at a time, as strictly as Unicode's table 3-7: no surrogates, no
// overlong forms, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace larder::model::inline pretokenizer {

enum class Utf8Kind { kCharacter, kInvalid, kIncomplete };

struct Utf8Step {
  Utf8Kind kind;
  // Length in bytes. kInvalid: the length of the longest valid start of a character; one U+FFFD
  // replaces it.
  size_t bytes;
  char32_t code;  // kCharacter only
};

// Decodes the first character of `text`, which is not empty. kIncomplete: all of `text` is the
// start of a character.
Utf8Step NextUtf8(std::string_view text);

// Appends `code`, which is below 0x110000.
void AppendUtf8(std::string& text, char32_t code);

}  // namespace larder::model::pretokenizer
