// JsonScanner: finds the end of a JSON value, byte by byte, and checks its grammar on the way (RFC
// 8259, except that control characters may stand in strings, as models write them).
// JsonStringDecoder: the text of a string, byte by byte. Each owned by one parser of calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace larder::serving::inline answer {

// What a byte-fed machine says of the byte it was given.
enum class Verdict : uint8_t {
  kMore,        // taken; it goes on
  kDone,        // taken; that was the last one
  kDoneBefore,  // not taken: the end was before it
  kBroken,      // not taken: this byte is wrong here
};

class JsonScanner {
 public:
  static constexpr size_t kMostDepth = 256;

  Verdict Next(char c);
  bool in_string() const { return state_ == State::kString || state_ == State::kKey; }

 private:
  enum class State : uint8_t {
    kValue,
    kFirstItem,
    kFirstKey,
    kNextKey,
    kColon,
    kAfter,  // between tokens
    kString,
    kKey,
    kEscape,
    kHex,
    kLiteral,
    kNumber,
    kEnd,
  };
  Verdict Value(char c);
  Verdict After(char c);
  Verdict Close(char open);
  Verdict String(char c);
  Verdict Escape(char c);
  Verdict Number(char c);
  bool NumberTakes(char c);
  Verdict Complete();  // a value is complete

  State state_ = State::kValue;
  State string_ = State::kString;  // what an escape returns to
  std::string open_;               // { and [ that are open
  std::string_view literal_;       // what is left of true, false, null
  int hex_ = 0;
  enum class Digits : uint8_t { kMinus, kZero, kInteger, kPoint, kFraction, kE, kSign, kExponent };
  Digits digits_ = Digits::kMinus;
};

// The text of the UTF-16 units that \u escapes name. Half of a pair becomes U+FFFD.
class EscapedUnits {
 public:
  // Appends what the unit completes.
  void Add(uint32_t unit, std::string& text);
  // Something else follows.
  void End(std::string& text);

 private:
  uint32_t high_ = 0;  // the first half of a pair; 0: none waits for its other half
};

class JsonStringDecoder {
 public:
  // Behind the opening quote. Appends what the byte completes to `text`; kDone at the closing
  // quote.
  Verdict Next(char c, std::string& text);

 private:
  bool escaped_ = false;
  int hex_ = 0;  // digits that are missing
  uint32_t unit_ = 0;
  EscapedUnits units_;
};

inline bool IsJsonSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
// Without the JSON white space at its ends.
inline std::string_view StripJsonSpace(std::string_view text) {
  while (!text.empty() && IsJsonSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsJsonSpace(text.back())) text.remove_suffix(1);
  return text;
}

// The inside of a JSON string: quotes, backslashes and control characters escaped, all else as it
// is.
void AppendJsonEscaped(std::string& json, std::string_view text);

}  // namespace larder::serving::answer
