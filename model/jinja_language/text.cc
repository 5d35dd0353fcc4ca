#include "model/jinja_language/text.h"

#include <clocale>
#include <cwctype>

namespace larder::model::inline jinja_language {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Characters beyond ASCII as glibc's C.UTF-8 knows them; null (then they have no case) without that
// locale.
locale_t Unicode() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

}  // namespace

void Text::Append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_trusted_ = trusted;
    borders_.clear();
  } else if (LastTrusted() != trusted) {
    borders_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  bytes_.append(bytes);
}

void Text::Append(const Text& text, size_t begin, size_t end) {
  text.ForEachPart(begin, end, [&](std::string_view part, bool trusted) { Append(part, trusted); });
}

Text Text::Slice(size_t begin, size_t end) const {
  Text out;
  out.Append(*this, begin, end);
  return out;
}

bool Text::TrustedAt(size_t at) const {
  bool trusted = first_trusted_;
  for (size_t i = 0; i < borders_.size() && borders_[i] <= at; ++i) trusted = !trusted;
  return trusted;
}

size_t CharBytes(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  const size_t bytes = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  if (at + bytes > text.size()) return 1;
  for (size_t i = 1; i < bytes; ++i) {
    if (!IsContinuation(text[at + i])) return 1;
  }
  return bytes;
}

size_t CharCount(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += CharBytes(text, at)) ++count;
  return count;
}

size_t CharOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += CharBytes(text, at);
  return at;
}

uint32_t CharAt(std::string_view text, size_t at, size_t* bytes) {
  *bytes = CharBytes(text, at);
  const auto lead = static_cast<uint8_t>(text[at]);
  if (*bytes == 1) return lead;
  uint32_t code = lead & (0xFFu >> (*bytes + 1));
  for (size_t i = 1; i < *bytes; ++i)
    code = code << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3F);
  return code;
}

void AppendChar(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18 & 7));
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool IsSpaceChar(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

size_t SkipSpace(std::string_view text, size_t begin, size_t end) {
  while (begin < end) {
    size_t bytes = 0;
    const uint32_t c = CharAt(text, begin, &bytes);
    if (!IsSpaceChar(c) || (bytes == 1 && c >= 0x80)) break;
    begin += bytes;
  }
  return begin < end ? begin : end;
}

size_t SkipSpaceBack(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    size_t at = end - 1;
    while (at > begin && IsContinuation(text[at]) && end - at < 4) --at;
    size_t bytes = 0;
    const uint32_t c = CharAt(text, at, &bytes);
    if (at + bytes != end || !IsSpaceChar(c) || (bytes == 1 && c >= 0x80)) break;
    end = at;
  }
  return end;
}

uint32_t UpperChar(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return Unicode() == nullptr
             ? c
             : static_cast<uint32_t>(towupper_l(static_cast<wint_t>(c), Unicode()));
}
uint32_t LowerChar(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return Unicode() == nullptr
             ? c
             : static_cast<uint32_t>(towlower_l(static_cast<wint_t>(c), Unicode()));
}
bool IsAlphaChar(uint32_t c) {
  if (c < 0x80) return (c | 32) >= 'a' && (c | 32) <= 'z';
  return Unicode() != nullptr && iswalpha_l(static_cast<wint_t>(c), Unicode()) != 0;
}
bool IsUpperChar(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return Unicode() != nullptr && iswupper_l(static_cast<wint_t>(c), Unicode()) != 0;
}
bool IsLowerChar(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return Unicode() != nullptr && iswlower_l(static_cast<wint_t>(c), Unicode()) != 0;
}

}  // namespace larder::model::jinja_language
