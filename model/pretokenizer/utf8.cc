#include "model/pretokenizer/utf8.h"

#include <cstdint>

namespace larder::model::inline pretokenizer {

Utf8Step NextUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Kind::kCharacter, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::kInvalid, 1, 0};

  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range is narrower after four lead bytes, which excludes overlong forms,
  // surrogates and codes beyond Unicode.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i, 0};
    const uint8_t next = byte(i);
    const bool fits = i == 1 ? next >= low && next <= high : (next & 0xC0) == 0x80;
    if (!fits) return {Utf8Kind::kInvalid, i, 0};
    code = code << 6 | (next & 0x3F);
  }
  return {Utf8Kind::kCharacter, length, code};
}

void AppendUtf8(std::string& text, char32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace larder::model::pretokenizer
