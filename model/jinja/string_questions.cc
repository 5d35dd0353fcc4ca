// Python's methods of str that answer with a bool or a number.
#include <algorithm>

#include "model/jinja/functions.h"

namespace larder::model::inline jinja {
namespace {

// The bytes [begin, end) that start and end, counted in characters, leave of a text.
std::string_view Window(Rendering& r, const Value& self, CallArgs& args, size_t* offset) {
  const std::string_view text = self.view();
  *offset = 0;
  if (!args.Has(1, "start")) return text;
  const auto count = static_cast<int64_t>(CharCount(text));
  const auto bound = [&](size_t at, std::string_view name, int64_t open) {
    const Value v = args.Get(at, name, Value::None());
    if (v.none()) return open;
    const int64_t i = r.NeedInt(v, name);
    return std::clamp<int64_t>(i < 0 ? (i < -count ? 0 : i + count) : i, 0, count);
  };
  const int64_t begin = bound(1, "start", 0), end = std::max(begin, bound(2, "end", count));
  *offset = CharOffset(text, static_cast<size_t>(begin));
  return text.substr(*offset, CharOffset(text.substr(*offset), static_cast<size_t>(end - begin)));
}

Value Edge(Rendering& r, const Value& self, CallArgs& args, bool front) {
  const Value what = args.Get(0, "prefix");
  size_t offset = 0;
  const std::string_view text = Window(r, self, args, &offset);
  const auto matches = [&](const Value& one) {
    const std::string_view edge = r.NeedText(one, "what startswith or endswith looks for").view();
    return front ? text.starts_with(edge) : text.ends_with(edge);
  };
  if (!what.Is(Kind::kTuple)) return Value::Bool(matches(what));
  return Value::Bool(std::any_of(what.list->items.begin(), what.list->items.end(), matches));
}
Value StartsWith(Rendering& r, const Value& v, CallArgs& args) { return Edge(r, v, args, true); }
Value EndsWith(Rendering& r, const Value& v, CallArgs& args) { return Edge(r, v, args, false); }

Value Position(Rendering& r, const Value& self, CallArgs& args, bool back, bool must) {
  size_t offset = 0;
  const std::string_view text = Window(r, self, args, &offset);
  const std::string_view what = r.NeedText(args.Get(0, "sub"), "what to find").view();
  r.heap().Step(text.size() / 64);
  const size_t at = back ? text.rfind(what) : text.find(what);
  if (at == text.npos) {
    if (must) r.FailText("substring not found");
    return Value::Int(-1);
  }
  return Value::Int(static_cast<int64_t>(CharCount(self.view().substr(0, offset + at))));
}
Value FindFront(Rendering& r, const Value& v, CallArgs& args) {
  return Position(r, v, args, false, false);
}
Value FindBack(Rendering& r, const Value& v, CallArgs& args) {
  return Position(r, v, args, true, false);
}
Value IndexFront(Rendering& r, const Value& v, CallArgs& args) {
  return Position(r, v, args, false, true);
}
Value IndexBack(Rendering& r, const Value& v, CallArgs& args) {
  return Position(r, v, args, true, true);
}

Value CountIn(Rendering& r, const Value& self, CallArgs& args) {
  size_t offset = 0;
  const std::string_view text = Window(r, self, args, &offset);
  const std::string_view what = r.NeedText(args.Get(0, "sub"), "what to count").view();
  r.heap().Step(text.size() / 64);
  if (what.empty()) return Value::Int(static_cast<int64_t>(CharCount(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size()))
    ++count;
  return Value::Int(count);
}

bool IsDigitChar(uint32_t c) { return c >= '0' && c <= '9'; }
bool IsAlnumChar(uint32_t c) { return IsDigitChar(c) || IsAlphaChar(c); }
bool IsAsciiChar(uint32_t c) { return c < 0x80; }
bool IsPrintableChar(uint32_t c) { return c >= 0x20 && c != 0x7f && (c == ' ' || !IsSpaceChar(c)); }

bool All(const Text& text, bool (*is)(uint32_t)) {
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    if (!is(CharAt(text.view(), at, &bytes))) return false;
  }
  return true;
}
Value NonEmptyAll(const Value& v, bool (*is)(uint32_t)) {
  return Value::Bool(!v.text->empty() && All(*v.text, is));
}

Value IsDigit(Rendering&, const Value& v, CallArgs&) { return NonEmptyAll(v, IsDigitChar); }
Value IsAlpha(Rendering&, const Value& v, CallArgs&) { return NonEmptyAll(v, IsAlphaChar); }
Value IsAlnum(Rendering&, const Value& v, CallArgs&) { return NonEmptyAll(v, IsAlnumChar); }
Value IsSpace(Rendering&, const Value& v, CallArgs&) { return NonEmptyAll(v, IsSpaceChar); }
Value IsAscii(Rendering&, const Value& v, CallArgs&) {
  return Value::Bool(All(*v.text, IsAsciiChar));
}
Value IsPrintable(Rendering&, const Value& v, CallArgs&) {
  return Value::Bool(All(*v.text, IsPrintableChar));
}

Value Cased(const Value& v, bool (*wanted)(uint32_t), bool (*refused)(uint32_t)) {
  bool any = false;
  for (size_t at = 0, bytes = 0; at < v.text->size(); at += bytes) {
    const uint32_t c = CharAt(v.view(), at, &bytes);
    if (refused(c)) return Value::Bool(false);
    any = any || wanted(c);
  }
  return Value::Bool(any);
}
Value IsUpper(Rendering&, const Value& v, CallArgs&) { return Cased(v, IsUpperChar, IsLowerChar); }
Value IsLower(Rendering&, const Value& v, CallArgs&) { return Cased(v, IsLowerChar, IsUpperChar); }

constexpr NamedBuiltin kQuestions[] = {
    {"count", CountIn},    {"endswith", EndsWith},     {"find", FindFront},
    {"index", IndexFront}, {"isalnum", IsAlnum},       {"isalpha", IsAlpha},
    {"isascii", IsAscii},  {"isdecimal", IsDigit},     {"isdigit", IsDigit},
    {"islower", IsLower},  {"isnumeric", IsDigit},     {"isprintable", IsPrintable},
    {"isspace", IsSpace},  {"isupper", IsUpper},       {"rfind", FindBack},
    {"rindex", IndexBack}, {"startswith", StartsWith},
};

}  // namespace

std::span<const NamedBuiltin> StringQuestions() { return kQuestions; }

}  // namespace larder::model::jinja
