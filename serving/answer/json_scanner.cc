#include "serving/answer/json_scanner.h"

#include "serving/grammar/syntax.h"

namespace larder::serving::inline answer {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Verdict JsonScanner::Complete() {
  state_ = open_.empty() ? State::kEnd : State::kAfter;
  return open_.empty() ? Verdict::kDone : Verdict::kMore;
}

Verdict JsonScanner::Value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() == kMostDepth) return Verdict::kBroken;
      open_ += c;
      state_ = c == '{' ? State::kFirstKey : State::kFirstItem;
      return Verdict::kMore;
    case '"':
      state_ = string_ = State::kString;
      return Verdict::kMore;
    case 't':
      literal_ = "rue";
      break;
    case 'f':
      literal_ = "alse";
      break;
    case 'n':
      literal_ = "ull";
      break;
    default:
      if (c != '-' && !IsDigit(c)) return Verdict::kBroken;
      digits_ = c == '-' ? Digits::kMinus : c == '0' ? Digits::kZero : Digits::kInteger;
      state_ = State::kNumber;
      return Verdict::kMore;
  }
  state_ = State::kLiteral;
  return Verdict::kMore;
}

Verdict JsonScanner::Close(char open) {
  if (open_.empty() || open_.back() != open) return Verdict::kBroken;
  open_.pop_back();
  return Complete();
}

Verdict JsonScanner::After(char c) {
  if (c == '}') return Close('{');
  if (c == ']') return Close('[');
  if (c != ',') return Verdict::kBroken;
  state_ = open_.back() == '{' ? State::kNextKey : State::kValue;
  return Verdict::kMore;
}

Verdict JsonScanner::String(char c) {
  if (c == '\\') {
    state_ = State::kEscape;
  } else if (c == '"') {
    if (state_ == State::kString) return Complete();
    state_ = State::kColon;
  }
  return Verdict::kMore;
}

Verdict JsonScanner::Escape(char c) {
  if (c == 'u') {
    hex_ = 4;
    state_ = State::kHex;
    return Verdict::kMore;
  }
  if (std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos) return Verdict::kBroken;
  state_ = string_;
  return Verdict::kMore;
}

bool JsonScanner::NumberTakes(char c) {
  const bool digit = IsDigit(c);
  const bool e = c == 'e' || c == 'E';
  switch (digits_) {
    case Digits::kMinus:
      if (digit) digits_ = c == '0' ? Digits::kZero : Digits::kInteger;
      return digit;
    case Digits::kZero:
    case Digits::kInteger:
      if (digit) return digits_ == Digits::kInteger;
      if (c == '.') digits_ = Digits::kPoint;
      if (e) digits_ = Digits::kE;
      return c == '.' || e;
    case Digits::kPoint:
      if (digit) digits_ = Digits::kFraction;
      return digit;
    case Digits::kFraction:
      if (e) digits_ = Digits::kE;
      return digit || e;
    case Digits::kE:
      if (digit) digits_ = Digits::kExponent;
      if (c == '+' || c == '-') digits_ = Digits::kSign;
      return digit || c == '+' || c == '-';
    case Digits::kSign:
      if (digit) digits_ = Digits::kExponent;
      return digit;
    case Digits::kExponent:
      return digit;
  }
  return false;
}

Verdict JsonScanner::Number(char c) {
  if (NumberTakes(c)) return Verdict::kMore;
  const bool whole = digits_ == Digits::kZero || digits_ == Digits::kInteger ||
                     digits_ == Digits::kFraction || digits_ == Digits::kExponent;
  if (!whole) return Verdict::kBroken;
  return Complete() == Verdict::kDone ? Verdict::kDoneBefore : Next(c);
}

Verdict JsonScanner::Next(char c) {
  const bool between = state_ <= State::kAfter;
  if (between && IsJsonSpace(c)) return Verdict::kMore;
  switch (state_) {
    case State::kValue:
      return Value(c);
    case State::kFirstItem:
      return c == ']' ? Close('[') : Value(c);
    case State::kFirstKey:
      if (c == '}') return Close('{');
      [[fallthrough]];
    case State::kNextKey:
      if (c != '"') return Verdict::kBroken;
      state_ = string_ = State::kKey;
      return Verdict::kMore;
    case State::kColon:
      if (c != ':') return Verdict::kBroken;
      state_ = State::kValue;
      return Verdict::kMore;
    case State::kAfter:
      return After(c);
    case State::kString:
    case State::kKey:
      return String(c);
    case State::kEscape:
      return Escape(c);
    case State::kHex:
      if (HexDigit(c) < 0) return Verdict::kBroken;
      if (--hex_ == 0) state_ = string_;
      return Verdict::kMore;
    case State::kLiteral:
      if (c != literal_.front()) return Verdict::kBroken;
      literal_.remove_prefix(1);
      return literal_.empty() ? Complete() : Verdict::kMore;
    case State::kNumber:
      return Number(c);
    case State::kEnd:
      return Verdict::kBroken;
  }
  return Verdict::kBroken;
}

void EscapedUnits::Add(uint32_t unit, std::string& text) {
  const bool low = unit >= 0xdc00 && unit < 0xe000;
  if (high_ != 0 && low) {
    unit = 0x10000 + ((high_ - 0xd800) << 10) + (unit - 0xdc00);
    high_ = 0;
  }
  End(text);
  if (unit >= 0xd800 && unit < 0xdc00) {
    high_ = unit;
  } else {
    AppendUtf8(text, unit);
  }
}

void EscapedUnits::End(std::string& text) {
  if (high_ != 0) AppendUtf8(text, high_);
  high_ = 0;
}

Verdict JsonStringDecoder::Next(char c, std::string& text) {
  if (hex_ > 0) {
    const int digit = HexDigit(c);
    if (digit < 0) return Verdict::kBroken;
    unit_ = unit_ << 4 | static_cast<uint32_t>(digit);
    if (--hex_ > 0) return Verdict::kMore;
    units_.Add(unit_, text);
    return Verdict::kMore;
  }
  if (escaped_) {
    escaped_ = false;
    if (c == 'u') {
      hex_ = 4;
      unit_ = 0;
      return Verdict::kMore;
    }
    constexpr std::string_view kNames = "\"\\/bfnrt";
    const size_t at = kNames.find(c);
    if (at == std::string_view::npos) return Verdict::kBroken;
    units_.End(text);
    text += "\"\\/\b\f\n\r\t"[at];
    return Verdict::kMore;
  }
  if (c == '\\') {
    escaped_ = true;
    return Verdict::kMore;
  }
  units_.End(text);
  if (c == '"') return Verdict::kDone;
  text += c;
  return Verdict::kMore;
}

void AppendJsonEscaped(std::string& json, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (byte >= 0x20) {
      json += c;
    } else if (c == '\n') {
      json += "\\n";
    } else if (c == '\t') {
      json += "\\t";
    } else if (c == '\r') {
      json += "\\r";
    } else {
      constexpr std::string_view kHex = "0123456789abcdef";
      json += "\\u00";
      json += kHex[byte >> 4];
      json += kHex[byte & 15];
    }
  }
}

}  // namespace larder::serving::answer
