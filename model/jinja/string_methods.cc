// Python's methods of str that make strings or lists of them.
#include <algorithm>
#include <cstring>

#include "model/jinja/functions.h"

namespace larder::model::inline jinja {

void StripRange(std::string_view text, const Value& chars, bool left, bool right, size_t* begin,
                size_t* end) {
  if (chars.none() || chars.undefined()) {
    if (left) *begin = SkipSpace(text, *begin, *end);
    if (right) *end = SkipSpaceBack(text, *begin, *end);
    return;
  }
  std::vector<std::string_view> set;
  for (size_t at = 0; at < chars.view().size();) {
    const size_t bytes = CharBytes(chars.view(), at);
    set.push_back(chars.view().substr(at, bytes));
    at += bytes;
  }
  const auto in_set = [&](size_t at, size_t bytes) {
    return std::find(set.begin(), set.end(), text.substr(at, bytes)) != set.end();
  };
  while (left && *begin < *end) {
    const size_t bytes = CharBytes(text, *begin);
    if (!in_set(*begin, bytes)) break;
    *begin += bytes;
  }
  while (right && *end > *begin) {
    size_t at = *end - 1;
    while (at > *begin && *end - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (at + CharBytes(text, at) != *end) at = *end - 1;
    if (!in_set(at, *end - at)) break;
    *end = at;
  }
}

Text MapChars(const Text& text, uint32_t (*map)(uint32_t)) {
  Text out;
  text.ForEachPart(0, text.size(), [&](std::string_view part, bool trusted) {
    std::string mapped;
    mapped.reserve(part.size());
    for (size_t at = 0, bytes = 0; at < part.size(); at += bytes) {
      const uint32_t c = CharAt(part, at, &bytes);
      if (bytes == 1 && c >= 0x80) {
        mapped += part[at];
      } else if (c == 0xDF && map == UpperChar) {
        mapped += "SS";
      } else {
        AppendChar(mapped, map(c));
      }
    }
    out.Append(mapped, trusted);
  });
  return out;
}

Text Replaced(Rendering& r, const Text& text, const Text& from, const Text& to, int64_t times) {
  Text out;
  const std::string_view view = text.view();
  size_t done = 0;
  const auto check = [&] {
    r.heap().Step();
    if (out.size() > r.heap().limits().memory_bytes)
      throw LimitReached{"a string becomes too long"};
  };
  if (from.empty()) {
    for (size_t at = 0; times != 0; --times) {
      check();
      out.Append(text, done, at);
      out.Append(to);
      done = at;
      if (at >= view.size()) break;
      at += CharBytes(view, at);
    }
  } else {
    for (size_t at; times != 0 && (at = view.find(from.view(), done)) != view.npos; --times) {
      check();
      out.Append(text, done, at);
      out.Append(to);
      done = at + from.size();
    }
  }
  out.Append(text, done, text.size());
  return out;
}

Text Centered(Rendering& r, const Text& text, int64_t width, std::string_view fill, int align) {
  const auto chars = static_cast<int64_t>(CharCount(text.view()));
  if (width <= chars) return text;
  const int64_t pad = width - chars;
  r.CheckSize(static_cast<size_t>(pad), fill.size());
  r.heap().Step(static_cast<size_t>(pad) / 8);
  // Python's center gives the left the smaller half, unless the width is odd.
  const int64_t left = align < 0 ? 0 : align > 0 ? pad : pad / 2 + (pad & width & 1);
  Text out;
  const auto put = [&](int64_t count) {
    std::string padding;
    for (int64_t i = 0; i < count; ++i) padding += fill;
    out.Append(padding, true);
  };
  put(left);
  out.Append(text);
  put(pad - left);
  return out;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view view = text.view();
  size_t begin = 0;
  for (size_t at = 0, bytes = 0; at < view.size(); at += bytes) {
    const uint32_t c = CharAt(view, at, &bytes);
    const bool end = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) ||
                     (bytes > 1 && (c == 0x85 || c == 0x2028 || c == 0x2029));
    if (!end) continue;
    if (c == '\r' && at + 1 < view.size() && view[at + 1] == '\n') bytes = 2;
    lines.push_back(text.Slice(begin, keep_ends ? at + bytes : at));
    begin = at + bytes;
  }
  if (begin < view.size()) lines.push_back(text.Slice(begin, view.size()));
  return lines;
}

namespace {

Value Strip(Rendering& r, const Value& self, CallArgs& args, bool left, bool right) {
  const Value chars = args.Get(0, "chars", Value::None());
  if (!chars.none()) r.NeedText(chars, "strip's characters");
  size_t begin = 0, end = self.text->size();
  StripRange(self.view(), chars, left, right, &begin, &end);
  if (begin == 0 && end == self.text->size()) return self;
  return r.heap().String(self.text->Slice(begin, end));
}
Value StripBoth(Rendering& r, const Value& v, CallArgs& args) {
  return Strip(r, v, args, true, true);
}
Value StripLeft(Rendering& r, const Value& v, CallArgs& args) {
  return Strip(r, v, args, true, false);
}
Value StripRight(Rendering& r, const Value& v, CallArgs& args) {
  return Strip(r, v, args, false, true);
}

Value TextList(Rendering& r, std::vector<Text> texts, Kind kind = Kind::kList) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.push_back(r.heap().String(std::move(text)));
  r.heap().Step(items.size());
  return r.heap().NewList(std::move(items), kind);
}

// Cuts at white space; at most `most` cuts, below 0: any number.
std::vector<Text> SplitWords(const Text& text, int64_t most) {
  std::vector<Text> parts;
  const std::string_view view = text.view();
  for (size_t at = SkipSpace(view, 0, view.size()); at < view.size();) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text.Slice(at, view.size()));
      break;
    }
    size_t end = at;
    while (end < view.size() && SkipSpace(view, end, view.size()) == end)
      end += CharBytes(view, end);
    parts.push_back(text.Slice(at, end));
    at = SkipSpace(view, end, view.size());
  }
  return parts;
}

std::vector<Text> SplitWordsBack(const Text& text, int64_t most) {
  std::vector<Text> parts;
  const std::string_view view = text.view();
  for (size_t end = SkipSpaceBack(view, 0, view.size()); end > 0;) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text.Slice(0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0 && SkipSpaceBack(view, 0, begin) == begin) {
      --begin;
      while (begin > 0 && (static_cast<uint8_t>(view[begin]) & 0xC0) == 0x80) --begin;
    }
    parts.push_back(text.Slice(begin, end));
    end = SkipSpaceBack(view, 0, begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value Split(Rendering& r, const Value& self, CallArgs& args) {
  const Value separator = args.Get(0, "sep", Value::None());
  const int64_t most = r.NeedInt(args.Get(1, "maxsplit", Value::Int(-1)), "split's maxsplit");
  if (separator.none()) return TextList(r, SplitWords(*self.text, most));
  const std::string_view by = r.NeedText(separator, "split's separator").view(), view = self.view();
  if (by.empty()) r.FailText("empty separator");
  std::vector<Text> parts;
  size_t done = 0;
  for (size_t at;
       static_cast<int64_t>(parts.size()) != most && (at = view.find(by, done)) != view.npos;) {
    parts.push_back(self.text->Slice(done, at));
    done = at + by.size();
    r.heap().Step(1 + self.text->borders() / 16);
  }
  parts.push_back(self.text->Slice(done, view.size()));
  return TextList(r, std::move(parts));
}

Value SplitBack(Rendering& r, const Value& self, CallArgs& args) {
  const Value separator = args.Get(0, "sep", Value::None());
  const int64_t most = r.NeedInt(args.Get(1, "maxsplit", Value::Int(-1)), "rsplit's maxsplit");
  if (separator.none()) return TextList(r, SplitWordsBack(*self.text, most));
  const std::string_view by = r.NeedText(separator, "rsplit's separator").view(),
                         view = self.view();
  if (by.empty()) r.FailText("empty separator");
  std::vector<Text> parts;
  size_t end = view.size();
  while (static_cast<int64_t>(parts.size()) != most && end >= by.size()) {
    const size_t at = view.substr(0, end).rfind(by);
    if (at == view.npos) break;
    parts.push_back(self.text->Slice(at + by.size(), end));
    end = at;
    r.heap().Step(1 + self.text->borders() / 16);
  }
  parts.push_back(self.text->Slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return TextList(r, std::move(parts));
}

Value Lines(Rendering& r, const Value& self, CallArgs& args) {
  return TextList(r, SplitLines(*self.text, Truth(args.Get(0, "keepends", Value::Bool(false)))));
}

Value Partition(Rendering& r, const Value& self, CallArgs& args, bool back) {
  const std::string_view by = r.NeedText(args.Get(0, "sep"), "partition's separator").view(),
                         view = self.view();
  if (by.empty()) r.FailText("empty separator");
  const size_t at = back ? view.rfind(by) : view.find(by);
  std::vector<Text> parts(3);
  if (at == view.npos) {
    parts[back ? 2 : 0] = *self.text;
  } else {
    parts[0] = self.text->Slice(0, at);
    parts[1] = self.text->Slice(at, at + by.size());
    parts[2] = self.text->Slice(at + by.size(), view.size());
  }
  return TextList(r, std::move(parts), Kind::kTuple);
}
Value PartitionFront(Rendering& r, const Value& v, CallArgs& args) {
  return Partition(r, v, args, false);
}
Value PartitionBack(Rendering& r, const Value& v, CallArgs& args) {
  return Partition(r, v, args, true);
}

Value ReplaceMethod(Rendering& r, const Value& self, CallArgs& args) {
  const Text &from = r.NeedText(args.Get(0, "old"), "replace's first argument"),
             &to = r.NeedText(args.Get(1, "new"), "replace's second argument");
  return r.heap().String(Replaced(
      r, *self.text, from, to, r.NeedInt(args.Get(2, "count", Value::Int(-1)), "replace's count")));
}

Value UpperMethod(Rendering& r, const Value& v, CallArgs&) {
  return r.heap().String(MapChars(*v.text, UpperChar));
}
Value LowerMethod(Rendering& r, const Value& v, CallArgs&) {
  return r.heap().String(MapChars(*v.text, LowerChar));
}
uint32_t SwappedChar(uint32_t c) { return IsUpperChar(c) ? LowerChar(c) : UpperChar(c); }
Value SwapCase(Rendering& r, const Value& v, CallArgs&) {
  return r.heap().String(MapChars(*v.text, SwappedChar));
}

Value TitleMethod(Rendering& r, const Value& self, CallArgs&) {
  Text out;
  bool inside = false;
  self.text->ForEachPart(0, self.text->size(), [&](std::string_view part, bool trusted) {
    for (size_t at = 0, bytes = 0; at < part.size(); at += bytes) {
      const uint32_t c = CharAt(part, at, &bytes);
      out.Append(MapChars(Text(std::string(part.substr(at, bytes)), trusted),
                          inside ? LowerChar : UpperChar));
      inside = IsUpperChar(c) || IsLowerChar(c);
    }
  });
  return r.heap().String(std::move(out));
}

Value CapitalizeMethod(Rendering& r, const Value& self, CallArgs&) {
  if (self.text->empty()) return self;
  const size_t first = CharBytes(self.view(), 0);
  Text out = MapChars(self.text->Slice(0, first), UpperChar);
  out.Append(MapChars(self.text->Slice(first, self.text->size()), LowerChar));
  return r.heap().String(std::move(out));
}

Value JoinMethod(Rendering& r, const Value& self, CallArgs& args) {
  if (!args.Has(0, "iterable")) r.FailText("join lacks its argument");
  const Value list = args.Get(0, "iterable");
  Text out;
  bool first = true;
  for (const Value& item : r.Items(list)) {
    r.heap().Step();
    if (!first) out.Append(*self.text);
    first = false;
    out.Append(r.NeedText(item, "an item that join gets"));
    if (out.size() > r.heap().limits().memory_bytes)
      throw LimitReached{"a string becomes too long"};
  }
  return r.heap().String(std::move(out));
}

Value FormatMethod(Rendering& r, const Value& self, CallArgs& args) {
  return FormatBraces(r, *self.text, args);
}

Value Aligned(Rendering& r, const Value& self, CallArgs& args, int align) {
  const Value fill = args.Get(1, "fillchar", r.Bytes(" ", true));
  if (CharCount(r.NeedText(fill, "the fill character").view()) != 1)
    r.FailText("the fill character must be one");
  return r.heap().String(
      Centered(r, *self.text, r.NeedInt(args.Get(0, "width"), "the width"), fill.view(), align));
}
Value CenterMethod(Rendering& r, const Value& v, CallArgs& args) { return Aligned(r, v, args, 0); }
Value LeftMethod(Rendering& r, const Value& v, CallArgs& args) { return Aligned(r, v, args, -1); }
Value RightMethod(Rendering& r, const Value& v, CallArgs& args) { return Aligned(r, v, args, 1); }

Value ZeroFill(Rendering& r, const Value& self, CallArgs& args) {
  const bool sign = self.view().starts_with('-') || self.view().starts_with('+');
  const int64_t width = r.NeedInt(args.Get(0, "width"), "zfill's width");
  Text out = self.text->Slice(0, sign ? 1 : 0);
  out.Append(Centered(r, self.text->Slice(sign ? 1 : 0, self.text->size()),
                      width - (sign && width > 0 ? 1 : 0), "0", 1));
  return r.heap().String(std::move(out));
}

Value RemovePrefix(Rendering& r, const Value& self, CallArgs& args) {
  const std::string_view prefix =
      r.NeedText(args.Get(0, "prefix"), "removeprefix's argument").view();
  return self.view().starts_with(prefix)
             ? r.heap().String(self.text->Slice(prefix.size(), self.text->size()))
             : self;
}
Value RemoveSuffix(Rendering& r, const Value& self, CallArgs& args) {
  const std::string_view suffix =
      r.NeedText(args.Get(0, "suffix"), "removesuffix's argument").view();
  return self.view().ends_with(suffix)
             ? r.heap().String(self.text->Slice(0, self.text->size() - suffix.size()))
             : self;
}

constexpr NamedBuiltin kMethods[] = {
    {"capitalize", CapitalizeMethod},
    {"casefold", LowerMethod},
    {"center", CenterMethod},
    {"format", FormatMethod},
    {"join", JoinMethod},
    {"ljust", LeftMethod},
    {"lower", LowerMethod},
    {"lstrip", StripLeft},
    {"partition", PartitionFront},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"replace", ReplaceMethod},
    {"rjust", RightMethod},
    {"rpartition", PartitionBack},
    {"rsplit", SplitBack},
    {"rstrip", StripRight},
    {"split", Split},
    {"splitlines", Lines},
    {"strip", StripBoth},
    {"swapcase", SwapCase},
    {"title", TitleMethod},
    {"upper", UpperMethod},
    {"zfill", ZeroFill},
};

}  // namespace

std::span<const NamedBuiltin> StringMethods() { return kMethods; }

}  // namespace larder::model::jinja
