#include "model/chat/chat_text.h"

#include <algorithm>

#include "model/tokenizer/tokenizer_utf8.h"

namespace larder::model::inline chat {
namespace {

// Python's str.isspace(): bidirectional class WS, B or S, or category Zs.
bool IsPythonSpace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

// The length of the white-space character that starts the text; 0 if another does, or the text is empty.
size_t SpaceLength(std::string_view text) {
  if (text.empty()) return 0;
  const Utf8Step step = NextUtf8(text);
  return step.kind == Utf8Kind::kCharacter && IsPythonSpace(step.code) ? step.bytes : 0;
}

}  // namespace

std::string_view StripSpace(std::string_view text) {
  while (const size_t length = SpaceLength(text)) text.remove_prefix(length);
  // A white-space character has one to three bytes in UTF-8, and no proper suffix of it is white space.
  for (size_t length = 1; length <= std::min<size_t>(3, text.size());) {
    if (SpaceLength(text.substr(text.size() - length)) == length) {
      text.remove_suffix(length);
      length = 1;
    } else {
      ++length;
    }
  }
  return text;
}

std::string_view StripLeadingNewlines(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view StripTrailingNewlines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace larder::model::chat
