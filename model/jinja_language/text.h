// Text: a string of a template that knows which of its bytes come from the template (trusted) and
// which from data (messages, tools). Every operation on strings keeps that, byte by byte. Positions
// are in bytes; where Python counts characters, CharOffset() translates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace larder::model::inline jinja_language {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)), first_trusted_(trusted) {}

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void Append(std::string_view bytes, bool trusted);
  void Append(const Text& text) { Append(text, 0, text.size()); }
  void Append(const Text& text, size_t begin, size_t end);
  Text Slice(size_t begin, size_t end) const;

  // Calls part(std::string_view, bool trusted) for each longest run of one origin in [begin, end).
  template <typename Part>
  void ForEachPart(size_t begin, size_t end, Part&& part) const {
    bool trusted = first_trusted_;
    size_t at = 0;
    for (size_t i = 0; i <= borders_.size() && at < end; ++i, trusted = !trusted) {
      const size_t next = i < borders_.size() ? borders_[i] : bytes_.size();
      const size_t from = at < begin ? begin : at, to = next < end ? next : end;
      if (from < to) part(std::string_view(bytes_).substr(from, to - from), trusted);
      at = next;
    }
  }
  bool TrustedAt(size_t at) const;
  size_t borders() const { return borders_.size(); }

 private:
  bool LastTrusted() const { return first_trusted_ != ((borders_.size() & 1) != 0); }

  std::string bytes_;
  std::vector<uint32_t> borders_;  // where the origin changes, ascending, inside the text
  bool first_trusted_ = false;
};

// UTF-8 as Python sees it: bytes that are no UTF-8 count as characters of one byte.
size_t CharBytes(std::string_view text, size_t at);  // bytes of the character at `at`
size_t CharCount(std::string_view text);
size_t CharOffset(std::string_view text, size_t index);  // byte offset, text.size() behind the end
uint32_t CharAt(std::string_view text, size_t at, size_t* bytes);  // code point
void AppendChar(std::string& out, uint32_t code_point);
bool IsSpaceChar(uint32_t code_point);  // str.isspace
// The first character that is not white space, and the end of the last one.
std::string_view::size_type SkipSpace(std::string_view text, size_t begin, size_t end);
std::string_view::size_type SkipSpaceBack(std::string_view text, size_t begin, size_t end);

// str.upper and the like, character by character (only German sharp s changes the length).
uint32_t UpperChar(uint32_t code_point);
uint32_t LowerChar(uint32_t code_point);
bool IsAlphaChar(uint32_t code_point);
bool IsUpperChar(uint32_t code_point);
bool IsLowerChar(uint32_t code_point);

}  // namespace larder::model::jinja_language
