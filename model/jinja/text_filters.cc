// Filters for strings.
#include <algorithm>

#include "model/jinja/functions.h"

namespace larder::model::inline jinja {

namespace {

Value Safe(Rendering& r, const Value& value, CallArgs&) {
  Value safe = value.string() ? value : r.heap().String(r.ToText(value));
  safe.markup = true;
  return safe;
}

Value Escape(Rendering& r, const Value& value, CallArgs&) { return EscapeHtml(r, value); }

Value String(Rendering& r, const Value& value, CallArgs&) {
  return value.string() ? value : r.heap().String(r.ToText(value));
}

// What makes text of text keeps its being markup.
Value Like(Rendering& r, const Value& value, Text text) {
  Value out = r.heap().String(std::move(text));
  out.markup = value.string() && value.markup;
  return out;
}

Value Upper(Rendering& r, const Value& v, CallArgs&) {
  return Like(r, v, MapChars(r.ToText(v), UpperChar));
}
Value Lower(Rendering& r, const Value& v, CallArgs&) {
  return Like(r, v, MapChars(r.ToText(v), LowerChar));
}

Value Trim(Rendering& r, const Value& value, CallArgs& args) {
  const Text text = r.ToText(value);
  const Value chars = args.Get(0, "chars", Value::None());
  if (!chars.none()) r.NeedText(chars, "trim's characters");
  size_t begin = 0, end = text.size();
  StripRange(text.view(), chars, true, true, &begin, &end);
  return Like(r, value, text.Slice(begin, end));
}

// The first letter of each word up, the rest down; words begin behind white space and -({[<.
Value Title(Rendering& r, const Value& value, CallArgs&) {
  const Text text = r.ToText(value);
  Text out;
  bool first = true;
  text.ForEachPart(0, text.size(), [&](std::string_view part, bool trusted) {
    for (size_t at = 0, bytes = 0; at < part.size(); at += bytes) {
      const uint32_t c = CharAt(part, at, &bytes);
      const bool border =
          IsSpaceChar(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                             std::string_view::npos);
      out.Append(MapChars(Text(std::string(part.substr(at, bytes)), trusted),
                          first ? UpperChar : LowerChar));
      first = border;
    }
  });
  return Like(r, value, std::move(out));
}

Value Capitalize(Rendering& r, const Value& value, CallArgs&) {
  const Text text = r.ToText(value);
  if (text.empty()) return Like(r, value, {});
  const size_t first = CharBytes(text.view(), 0);
  Text out = MapChars(text.Slice(0, first), UpperChar);
  out.Append(MapChars(text.Slice(first, text.size()), LowerChar));
  return Like(r, value, std::move(out));
}

Value Replace(Rendering& r, const Value& value, CallArgs& args) {
  const Value count = args.Get(2, "count", Value::None());
  return r.heap().String(Replaced(r, r.ToText(value), r.ToText(args.Get(0, "old")),
                                  r.ToText(args.Get(1, "new")),
                                  count.none() ? -1 : r.NeedInt(count, "replace's count")));
}

Value Indent(Rendering& r, const Value& value, CallArgs& args) {
  const Value width = args.Get(0, "width", Value::Int(4));
  const bool first = Truth(args.Get(1, "first", Value::Bool(false)));
  const bool blank = Truth(args.Get(2, "blank", Value::Bool(false)));
  const Text& text = r.NeedText(value, "what 'indent' gets");
  Text by;
  if (width.string()) {
    by = *width.text;
  } else {
    const int64_t spaces = r.NeedInt(width, "indent's width");
    r.CheckSize(static_cast<size_t>(std::max<int64_t>(spaces, 0)), 1);
    by.Append(std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' '), true);
  }
  Text with_end = text;
  with_end.Append("\n", true);
  Text out;
  const std::vector<Text> lines = SplitLines(with_end, false);
  r.CheckSize(lines.size(), by.size());
  if (first) out.Append(by);
  for (size_t i = 0; i < lines.size(); ++i) {
    r.heap().Charge(by.size());
    if (i > 0) out.Append("\n", true);
    if (i > 0 && (blank || !lines[i].empty())) out.Append(by);
    out.Append(lines[i]);
  }
  return Like(r, value, std::move(out));
}

Value WordCount(Rendering& r, const Value& value, CallArgs&) {
  const Text text = r.ToText(value);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const uint32_t c = CharAt(text.view(), at, &bytes);
    const bool word = IsAlphaChar(c) || (c >= '0' && c <= '9') || c == '_';
    if (word && !inside) ++words;
    inside = word;
  }
  return Value::Int(words);
}

Value Truncate(Rendering& r, const Value& value, CallArgs& args) {
  const Text text = r.ToText(value);
  const int64_t length = r.NeedInt(args.Get(0, "length", Value::Int(255)), "truncate's length");
  const bool kill = Truth(args.Get(1, "killwords", Value::Bool(false)));
  const Value end = args.Get(2, "end", r.Bytes("...", true)),
              leeway = args.Get(3, "leeway", Value::None());
  const Text& tail = r.NeedText(end, "truncate's end");
  const int64_t extra = leeway.none() ? 5 : r.NeedInt(leeway, "truncate's leeway");
  const auto tail_chars = static_cast<int64_t>(CharCount(tail.view()));
  if (length < tail_chars || extra < 0)
    r.Fail("truncate: expected length >= {} and leeway >= 0", tail_chars);
  if (static_cast<int64_t>(CharCount(text.view())) - length <= extra) return Like(r, value, text);
  size_t cut = CharOffset(text.view(), static_cast<size_t>(length - tail_chars));
  if (!kill) {
    const size_t space = text.view().substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  Text out = text.Slice(0, cut);
  out.Append(tail);
  return Like(r, value, std::move(out));
}

Value Center(Rendering& r, const Value& value, CallArgs& args) {
  return Like(r, value,
              Centered(r, r.ToText(value),
                       r.NeedInt(args.Get(0, "width", Value::Int(80)), "center's width"), " ", 0));
}

Value Format(Rendering& r, const Value& value, CallArgs& args) {
  if (!args.named.empty()) {
    const Value dict = r.heap().NewDict();
    for (const auto& [name, v] : args.named) dict.dict->Set(r.Bytes(std::string(name), true), v);
    return FormatPercent(r, r.ToText(value), dict);
  }
  return FormatPercent(r, r.ToText(value), r.heap().NewList(args.positional, Kind::kTuple));
}

// transformers' own: json.dumps with these four arguments, no HTML escapes.
Value ToJsonFilter(Rendering& r, const Value& value, CallArgs& args) {
  JsonStyle style;
  style.ascii = Truth(args.Get(0, "ensure_ascii", Value::Bool(false)));
  const Value indent = args.Get(1, "indent", Value::None()),
              separators = args.Get(2, "separators", Value::None());
  style.sort_keys = Truth(args.Get(3, "sort_keys", Value::Bool(false)));
  if (!indent.none()) {
    style.has_indent = true;
    style.item_separator.resize(1);  // without the space
    if (indent.string()) {
      style.indent = indent.view();
    } else {
      const int64_t spaces = r.NeedInt(indent, "tojson's indent");
      if (spaces > 1000) throw LimitReached{"tojson: the indent is too large"};
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
    }
  }
  if (!separators.none()) {
    const std::vector<Value> both = r.Items(separators);
    if (both.size() != 2) r.FailText("tojson: expected two separators");
    style.item_separator = r.NeedText(both[0], "tojson's separator").view();
    style.key_separator = r.NeedText(both[1], "tojson's separator").view();
  }
  std::string json = ToJson(value, style);
  r.heap().Step(json.size() / 16);
  return r.Bytes(std::move(json), false);
}

constexpr NamedBuiltin kTextFilters[] = {
    {"capitalize", Capitalize},
    {"center", Center},
    {"e", Escape},
    {"escape", Escape},
    {"format", Format},
    {"indent", Indent},
    {"lower", Lower},
    {"replace", Replace},
    {"safe", Safe},
    {"string", String},
    {"title", Title},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", Upper},
    {"wordcount", WordCount},
};

}  // namespace

std::span<const NamedBuiltin> TextFilters() { return kTextFilters; }

}  // namespace larder::model::jinja
