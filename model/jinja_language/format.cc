// The two ways of Python to format: "%-5s" % x and "{:>5}".format(x).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/jinja_language/rendering.h"

namespace larder::model::inline jinja_language {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false, zero = false;
  char grouping = 0;
  int64_t width = 0, precision = -1;
  char type = 0;
};

std::string Grouped(std::string digits, char separator) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = end; at > 3;) {
    at -= 3;
    digits.insert(at, 1, separator);
  }
  return digits;
}

// Digits of a number without its sign.
std::string Digits(Rendering& r, const Value& v, const Spec& spec) {
  const auto precision =
      static_cast<int>(spec.precision < 0 ? 6 : std::min<int64_t>(spec.precision, 500));
  const double d = std::fabs(v.AsFloat());
  const auto real = [&](double value, char type) -> std::string {
    const bool upper = type == 'E' || type == 'F' || type == 'G';
    if (std::isnan(value)) return upper ? "NAN" : "nan";
    if (std::isinf(value)) return upper ? "INF" : "inf";
    switch (type) {
      case 'e':
        return fmt::format("{:.{}e}", value, precision);
      case 'E':
        return fmt::format("{:.{}E}", value, precision);
      case 'g':
        return spec.alternate ? fmt::format("{:#.{}g}", value, precision)
                              : fmt::format("{:.{}g}", value, precision);
      case 'G':
        return fmt::format("{:.{}G}", value, precision);
      default:
        return fmt::format("{:.{}f}", value, precision);
    }
  };
  const auto magnitude = [&] {
    const int64_t i = v.AsInt();
    return i < 0 ? uint64_t{0} - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
  };
  std::string out;
  switch (spec.type) {
    case 'b':
      out = fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude());
      break;
    case 'o':
      out = fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude());
      break;
    case 'x':
      out = fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude());
      break;
    case 'X':
      out = fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude());
      break;
    case 'd':
      out = std::to_string(magnitude());
      break;
    case '%':
      out = real(d * 100, 'f') + "%";
      break;
    case 0:
      if (v.integral()) {
        out = std::to_string(magnitude());
      } else {
        out = spec.precision < 0 ? PrintFloat(d) : real(d, 'g');
      }
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      out = real(d, spec.type);
      break;
    default:
      r.Fail("format: unknown code '{}'", spec.type);
  }
  return spec.grouping != 0 ? Grouped(std::move(out), spec.grouping) : out;
}

Text Padded(Rendering& r, Text text, const Spec& spec, char otherwise) {
  const char align = spec.align != 0 ? spec.align : otherwise;
  const auto chars = static_cast<int64_t>(CharCount(text.view()));
  if (spec.width <= chars) return text;
  if (spec.width > kMaxWidth) throw LimitReached{"format: the width is too large"};
  const int64_t pad = spec.width - chars, left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
  Text out;
  const auto put = [&](int64_t count) {
    std::string padding;
    for (int64_t i = 0; i < count; ++i) padding += spec.fill;
    out.Append(padding, true);
  };
  r.heap().Step(static_cast<uint64_t>(pad) / 8);
  put(left);
  out.Append(text);
  put(pad - left);
  return out;
}

Text FormatNumber(Rendering& r, const Value& v, const Spec& spec) {
  const bool negative = v.integral() ? v.AsInt() < 0 : std::signbit(v.real);
  std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  std::string digits = Digits(r, v, spec);
  if (spec.align == '=' || (spec.align == 0 && spec.zero)) {
    const auto have = static_cast<int64_t>(sign.size() + digits.size());
    if (spec.width > kMaxWidth) throw LimitReached{"format: the width is too large"};
    for (int64_t i = have; i < spec.width; ++i) sign += spec.zero ? "0" : spec.fill;
    return {sign + digits, true};
  }
  return Padded(r, {sign + digits, true}, spec, '>');
}

Text FormatText(Rendering& r, Text text, const Spec& spec, char align) {
  if (spec.precision >= 0)
    text = text.Slice(0, CharOffset(text.view(), static_cast<size_t>(spec.precision)));
  return Padded(r, std::move(text), spec, align);
}

int64_t TakeNumber(std::string_view text, size_t* at) {
  int64_t number = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9' && number < kMaxWidth * 10)
    number = number * 10 + (text[(*at)++] - '0');
  return number;
}

}  // namespace

Value FormatPercent(Rendering& r, const Text& format, const Value& args) {
  Text out;
  const std::string_view text = format.view();
  const bool tuple = args.Is(Kind::kTuple);
  size_t next = 0, done = 0;
  const auto take = [&]() -> Value {
    if (tuple ? next >= args.list->items.size() : next > 0)
      r.FailText("not enough arguments for format string");
    ++next;
    return tuple ? args.list->items[next - 1] : args;
  };
  bool by_name = false;
  for (size_t at; (at = text.find('%', done)) != text.npos;) {
    out.Append(format, done, at++);
    r.heap().Step();
    Spec spec;
    Value value;
    bool named = false;
    if (at < text.size() && text[at] == '(') {
      const size_t close = text.find(')', at);
      if (close == text.npos || !args.mapping()) r.FailText("format requires a mapping");
      const Value key = r.Bytes(std::string(text.substr(at + 1, close - at - 1)), true);
      const Value* found = args.dict->Find(key);
      if (found == nullptr) r.Fail("KeyError: {}", Repr(key));
      value = *found;
      named = by_name = true;
      at = close + 1;
    }
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos;
         ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '0') spec.zero = true;
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '+' || (text[at] == ' ' && spec.sign != '+')) spec.sign = text[at];
    }
    const auto number = [&]() -> int64_t {
      if (at >= text.size() || text[at] != '*') return TakeNumber(text, &at);
      ++at;
      return r.NeedInt(take(), "a format's width");
    };
    spec.width = number();
    if (spec.width < 0) spec.align = '<', spec.width = -spec.width;
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = std::max<int64_t>(0, number());
    }
    if (at >= text.size()) r.FailText("incomplete format");
    const char type = text[at++];
    done = at;
    if (type == '%') {
      out.Append("%", format.TrustedAt(at - 1));
      continue;
    }
    if (!named) value = take();
    if (type == 's' || type == 'r' || type == 'a') {
      spec.zero = false;
      out.Append(
          FormatText(r, type == 's' ? r.ToText(value) : Text(Repr(value), false), spec, '>'));
    } else if (type == 'c') {
      std::string one;
      if (value.integral())
        AppendChar(one, static_cast<uint32_t>(std::clamp<int64_t>(value.AsInt(), 0, 0x10FFFF)));
      out.Append(FormatText(
          r, value.integral() ? Text(one, true) : r.NeedText(value, "what %c prints"), spec, '>'));
    } else {
      r.NeedDefined(value);
      if (!value.number())
        r.Fail("%{} format: a real number is required, not {}", type, TypeName(value));
      spec.type = type == 'i' || type == 'u' ? 'd' : type;
      if (std::string_view("dxXo").find(spec.type) != std::string_view::npos && !value.integral()) {
        if (spec.type != 'd') r.Fail("%{} format: an integer is required, not float", type);
        if (!std::isfinite(value.real) || std::fabs(value.real) > 9e18)
          r.FailText("%d format: the number is too large");
        value = Value::Int(static_cast<int64_t>(value.real));
      }
      if (spec.align == '<') spec.zero = false;
      out.Append(FormatNumber(r, value, spec));
    }
    if (out.size() > r.heap().limits().memory_bytes)
      throw LimitReached{"a string becomes too long"};
  }
  out.Append(format, done, format.size());
  if (!by_name && !args.mapping() &&
      (tuple ? next < args.list->items.size() : next == 0 && !args.sequence()))
    r.FailText("not all arguments converted during string formatting");
  return r.heap().String(std::move(out));
}

namespace {

class BraceFormatter {
 public:
  BraceFormatter(Rendering& r, CallArgs& args) : r_(r), args_(args) {}

  Text Run(const Text& format, size_t depth) {
    if (depth > 2) r_.FailText("Max string recursion exceeded");
    Text out;
    const std::string_view text = format.view();
    for (size_t at = 0; at < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.Append(format, at, brace);
      if (brace == text.size()) break;
      r_.heap().Step();
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out.Append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') r_.FailText("Single '}' encountered in format string");
      size_t end = brace + 1;
      for (size_t open = 1; open > 0; ++end) {
        if (end >= text.size()) r_.FailText("expected '}' before end of string");
        if (text[end] == '{') ++open;
        if (text[end] == '}') --open;
      }
      out.Append(Field(format.Slice(brace + 1, end - 1), depth));
      at = end;
      if (out.size() > r_.heap().limits().memory_bytes)
        throw LimitReached{"a string becomes too long"};
    }
    return out;
  }

 private:
  Text Field(const Text& field, size_t depth) {
    const std::string_view text = field.view();
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = Lookup(text.substr(0, name_end));
    size_t at = name_end;
    if (at + 1 < text.size() && text[at] == '!') {
      const char conversion = text[at + 1];
      if (conversion == 's') value = r_.heap().String(r_.ToText(value));
      if (conversion == 'r' || conversion == 'a') value = r_.Bytes(Repr(value), false);
      at += 2;
    }
    if (at >= text.size()) return r_.ToText(value);
    const Text spec_text = Run(field.Slice(at + 1, field.size()), depth + 1);
    if (spec_text.empty()) return r_.ToText(value);
    r_.NeedDefined(value);
    const Spec spec = ReadSpec(spec_text.view());
    const bool as_bool = value.Is(Kind::kBool) && spec.type == 0;
    if (value.number() && !as_bool) {
      if (value.Is(Kind::kFloat) &&
          std::string_view("bcdoxX").find(spec.type) != std::string_view::npos && spec.type != 0)
        r_.Fail("Unknown format code '{}' for object of type 'float'", spec.type);
      return FormatNumber(r_, value, spec);
    }
    if (!value.string() && !as_bool)
      r_.Fail("unsupported format string passed to {}.__format__", TypeName(value));
    if (spec.type != 0 && spec.type != 's')
      r_.Fail("Unknown format code '{}' for object of type 'str'", spec.type);
    return FormatText(r_, r_.ToText(value), spec, '<');
  }

  Value Lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, end);
    Value value;
    size_t index = 0;
    const auto [stop, error] = std::from_chars(first.data(), first.data() + first.size(), index);
    if (first.empty() || (error == std::errc() && stop == first.data() + first.size())) {
      if (first.empty()) index = next_++;
      if (index >= args_.positional.size())
        r_.FailText("Replacement index out of range for positional args tuple");
      value = args_.positional[index];
    } else {
      if (!args_.Has(args_.positional.size(), first)) r_.Fail("KeyError: '{}'", first);
      value = args_.Get(args_.positional.size(), first);
    }
    for (size_t at = end; at < name.size();) {
      r_.heap().Step();
      const bool item = name[at] == '[';
      const size_t part_end = item ? std::min(name.find(']', at), name.size())
                                   : std::min(name.find_first_of(".[", at + 1), name.size());
      const std::string_view part = name.substr(at + 1, part_end - at - 1);
      int64_t number = 0;
      const auto [last, wrong] = std::from_chars(part.data(), part.data() + part.size(), number);
      const bool numeric = item && wrong == std::errc() && last == part.data() + part.size();
      const Value key = numeric ? Value::Int(number) : r_.Bytes(std::string(part), true);
      value = item ? r_.Item(value, key) : r_.Attribute(value, key.text);
      r_.NeedDefined(value);
      at = part_end + (item ? 1 : 0);
    }
    return value;
  }

  Spec ReadSpec(std::string_view text) {
    Spec spec;
    size_t at = 0;
    const auto is_align = [&](size_t i) {
      return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
    };
    const size_t first = text.empty() ? 0 : CharBytes(text, 0);
    if (is_align(first)) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(0)) {
      spec.align = text[0];
      at = 1;
    }
    const auto take = [&](char c) { return at < text.size() && text[at] == c && ++at > 0; };
    if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string_view::npos)
      spec.sign = text[at++];
    spec.alternate = take('#');
    spec.zero = take('0');
    spec.width = TakeNumber(text, &at);
    if (take(',')) spec.grouping = ',';
    if (take('_')) spec.grouping = '_';
    if (take('.')) spec.precision = TakeNumber(text, &at);
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size()) r_.FailText("Invalid format specifier");
    return spec;
  }

  Rendering& r_;
  CallArgs& args_;
  size_t next_ = 0;
};

}  // namespace

Value FormatBraces(Rendering& r, const Text& format, CallArgs& args) {
  return r.heap().String(BraceFormatter(r, args).Run(format, 0));
}

}  // namespace larder::model::jinja_language
