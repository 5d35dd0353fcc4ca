// Filters for lists, dicts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "model/jinja/functions.h"

namespace larder::model::inline jinja {

Value AttributePath(Rendering& r, const Value& object, const Value& path) {
  if (path.integral()) return r.Item(object, path);
  const std::string_view text = r.NeedText(path, "the attribute").view();
  Value value = object;
  for (size_t at = 0; at <= text.size();) {
    const size_t dot = std::min(text.find('.', at), text.size());
    const std::string_view part = text.substr(at, dot - at);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number =
        !part.empty() && error == std::errc() && end == part.data() + part.size() && part[0] != '-';
    value = r.Item(value, number ? Value::Int(index) : r.Bytes(std::string(part), true));
    at = dot + 1;
  }
  return value;
}

namespace {

Value Lowered(Rendering& r, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.string()) return value;
  return r.heap().String(MapChars(*value.text, LowerChar));
}

Value KeyOf(Rendering& r, const Value& item, const Value& attribute, bool case_sensitive,
            const Value& otherwise = {}) {
  Value key = item;
  if (!attribute.none() && !attribute.undefined()) {
    key = AttributePath(r, item, attribute);
    if (key.undefined() && !otherwise.undefined()) key = otherwise;
  }
  return Lowered(r, key, case_sensitive);
}

// Stable; in order of keys, which must be of types that Python orders.
std::vector<size_t> SortedOrder(Rendering& r, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Compared before they are sorted: an exception must not leave std::stable_sort in the middle.
  for (size_t i = 1; i < keys.size(); ++i) r.Order(keys[i - 1], keys[i]);
  r.heap().Step(keys.size() * 8);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? r.Order(keys[a], keys[b]) > 0 : r.Order(keys[a], keys[b]) < 0;
  });
  return order;
}

Value Default(Rendering& r, const Value& value, CallArgs& args) {
  const bool replace =
      value.undefined() || (Truth(args.Get(1, "boolean", Value::Bool(false))) && !Truth(value));
  return replace ? args.Get(0, "default_value", r.Bytes("", true)) : value;
}

Value Length(Rendering& r, const Value& value, CallArgs&) {
  return Value::Int(static_cast<int64_t>(r.Length(value)));
}

Value First(Rendering& r, const Value& value, CallArgs&) {
  if (value.string() && !value.text->empty()) return r.Item(value, Value::Int(0));
  const std::vector<Value> items = r.Items(value);
  return items.empty() ? Value() : items.front();
}

Value Last(Rendering& r, const Value& value, CallArgs&) {
  if (value.string() && !value.text->empty()) return r.Item(value, Value::Int(-1));
  const std::vector<Value> items = r.Items(value);
  return items.empty() ? Value() : items.back();
}

Value ListOf(Rendering& r, const Value& value, CallArgs&) {
  return r.heap().NewList(r.Items(value));
}

Value Join(Rendering& r, const Value& value, CallArgs& args) {
  const Text separator = r.ToText(args.Get(0, "d", r.Bytes("", true)));
  const Value attribute = args.Get(1, "attribute", Value::None());
  Text out;
  bool first = true;
  for (const Value& item : r.Items(value)) {
    r.heap().Step();
    if (!first) out.Append(separator);
    first = false;
    out.Append(r.ToText(attribute.none() ? item : AttributePath(r, item, attribute)));
    if (out.size() > r.heap().limits().memory_bytes)
      throw LimitReached{"a string becomes too long"};
  }
  return r.heap().String(std::move(out));
}

CallArgs Rest(const CallArgs& args, size_t from) {
  CallArgs rest;
  if (args.positional.size() > from)
    rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(from),
                           args.positional.end());
  rest.named = args.named;
  return rest;
}

Value Map(Rendering& r, const Value& value, CallArgs& args) {
  std::vector<Value> out;
  if (!Truth(value)) return r.heap().NewList(std::move(out));  // also of none
  const std::vector<Value> items = r.Items(value);
  if (args.positional.empty()) {
    const Value attribute = args.Get(0, "attribute"), otherwise = args.Get(9, "default");
    if (attribute.undefined()) r.FailText("map requires a filter argument");
    for (const Value& item : items) {
      r.heap().Step();
      const Value found = AttributePath(r, item, attribute);
      out.push_back(found.undefined() && args.Has(9, "default") ? otherwise : found);
    }
  } else {
    for (const Value& item : items) {
      CallArgs rest = Rest(args, 1);
      out.push_back(r.ApplyFilter(args.positional[0], item, rest));
    }
  }
  return r.heap().NewList(std::move(out));
}

Value SelectItems(Rendering& r, const Value& value, CallArgs& args, bool attribute, bool keep) {
  const size_t skip = attribute ? 1 : 0;
  if (attribute && args.positional.empty()) r.FailText("Missing parameter for attribute name");
  std::vector<Value> out;
  if (!Truth(value)) return r.heap().NewList(std::move(out));  // also of none
  for (const Value& item : r.Items(value)) {
    r.heap().Step();
    const Value tested = attribute ? AttributePath(r, item, args.positional[0]) : item;
    bool pass = false;
    if (args.positional.size() > skip) {
      CallArgs rest = Rest(args, skip + 1);
      pass = r.ApplyTest(args.positional[skip], tested, rest);
    } else {
      pass = Truth(tested);
    }
    if (pass == keep) out.push_back(item);
  }
  return r.heap().NewList(std::move(out));
}

Value Select(Rendering& r, const Value& v, CallArgs& args) {
  return SelectItems(r, v, args, false, true);
}
Value Reject(Rendering& r, const Value& v, CallArgs& args) {
  return SelectItems(r, v, args, false, false);
}
Value SelectAttr(Rendering& r, const Value& v, CallArgs& args) {
  return SelectItems(r, v, args, true, true);
}
Value RejectAttr(Rendering& r, const Value& v, CallArgs& args) {
  return SelectItems(r, v, args, true, false);
}

Value ItemPairs(Rendering& r, const Value& value, CallArgs&) {
  if (value.undefined()) return r.heap().NewList({});
  if (!value.mapping()) r.FailText("Can only get item pairs from a mapping.");
  std::vector<Value> out;
  for (const auto& [key, v] : value.dict->entries)
    out.push_back(r.heap().NewList({key, v}, Kind::kTuple));
  return r.heap().NewList(std::move(out));
}

Value DictSort(Rendering& r, const Value& value, CallArgs& args) {
  r.NeedDefined(value);
  if (!value.mapping()) r.Fail("dictsort: '{}' object has no items", TypeName(value));
  const bool case_sensitive = Truth(args.Get(0, "case_sensitive", Value::Bool(false)));
  const Value by = args.Get(1, "by", r.Bytes("key", true));
  const bool by_key = r.NeedText(by, "dictsort's 'by'").view() == "key";
  if (!by_key && by.view() != "value")
    r.FailText("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> keys, out;
  for (const auto& [key, v] : value.dict->entries)
    keys.push_back(Lowered(r, by_key ? key : v, case_sensitive));
  for (const size_t i : SortedOrder(r, keys, Truth(args.Get(2, "reverse", Value::Bool(false))))) {
    const auto& [key, v] = value.dict->entries[i];
    out.push_back(r.heap().NewList({key, v}, Kind::kTuple));
  }
  return r.heap().NewList(std::move(out));
}

Value Sort(Rendering& r, const Value& value, CallArgs& args) {
  const bool case_sensitive = Truth(args.Get(1, "case_sensitive", Value::Bool(false)));
  const Value attribute = args.Get(2, "attribute", Value::None());
  const std::vector<Value> items = r.Items(value);
  std::vector<Value> keys, out;
  const bool several = attribute.string() && attribute.view().find(',') != std::string_view::npos;
  for (const Value& item : items) {
    if (!several) {
      keys.push_back(KeyOf(r, item, attribute, case_sensitive));
      continue;
    }
    std::vector<Value> parts;
    for (std::string_view rest = attribute.view();;) {
      const size_t comma = std::min(rest.find(','), rest.size());
      parts.push_back(
          KeyOf(r, item, r.Bytes(std::string(rest.substr(0, comma)), true), case_sensitive));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
    keys.push_back(r.heap().NewList(std::move(parts)));
  }
  for (const size_t i : SortedOrder(r, keys, Truth(args.Get(0, "reverse", Value::Bool(false)))))
    out.push_back(items[i]);
  return r.heap().NewList(std::move(out));
}

Value Unique(Rendering& r, const Value& value, CallArgs& args) {
  const bool case_sensitive = Truth(args.Get(0, "case_sensitive", Value::Bool(false)));
  const Value attribute = args.Get(1, "attribute", Value::None());
  std::vector<Value> seen, out;
  for (const Value& item : r.Items(value)) {
    const Value key = KeyOf(r, item, attribute, case_sensitive);
    if (!Hashable(key)) r.Fail("unhashable type: '{}'", TypeName(key));
    r.heap().Step(1 + seen.size() / 8);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& old) { return Equal(old, key); }))
      continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return r.heap().NewList(std::move(out));
}

Value Extreme(Rendering& r, const Value& value, CallArgs& args, int sign) {
  const bool case_sensitive = Truth(args.Get(0, "case_sensitive", Value::Bool(false)));
  const Value attribute = args.Get(1, "attribute", Value::None());
  Value best, best_key;
  bool first = true;
  for (const Value& item : r.Items(value)) {
    const Value key = KeyOf(r, item, attribute, case_sensitive);
    if (first || r.Order(key, best_key) * sign > 0) best = item, best_key = key;
    first = false;
  }
  return best;
}
Value Min(Rendering& r, const Value& v, CallArgs& args) { return Extreme(r, v, args, -1); }
Value Max(Rendering& r, const Value& v, CallArgs& args) { return Extreme(r, v, args, 1); }

Value Sum(Rendering& r, const Value& value, CallArgs& args) {
  const Value attribute = args.Get(0, "attribute", Value::None());
  Value sum = args.Get(1, "start", Value::Int(0));
  for (const Value& item : r.Items(value)) {
    r.heap().Step();
    sum = r.Add(sum, attribute.none() ? item : AttributePath(r, item, attribute));
  }
  return sum;
}

Value Reverse(Rendering& r, const Value& value, CallArgs&) {
  std::vector<Value> items = r.Items(value);
  std::reverse(items.begin(), items.end());
  if (!value.string()) return r.heap().NewList(std::move(items));
  Text out;
  for (const Value& item : items) out.Append(*item.text);
  return r.heap().String(std::move(out));
}

Value Batch(Rendering& r, const Value& value, CallArgs& args) {
  const int64_t count = r.NeedInt(args.Get(0, "linecount"), "batch's size");
  const Value fill = args.Get(1, "fill_with", Value::None());
  if (count > int64_t{1} << 20) throw LimitReached{"batch: the size is too large"};
  std::vector<Value> out, row;
  for (const Value& item : r.Items(value)) {
    if (static_cast<int64_t>(row.size()) == count)
      out.push_back(r.heap().NewList(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    while (!fill.none() && static_cast<int64_t>(row.size()) < count) row.push_back(fill);
    out.push_back(r.heap().NewList(std::move(row)));
  }
  return r.heap().NewList(std::move(out));
}

Value Slice(Rendering& r, const Value& value, CallArgs& args) {
  const std::vector<Value> items = r.Items(value);
  const int64_t slices = r.NeedInt(args.Get(0, "slices"), "the number of slices");
  const Value fill = args.Get(1, "fill_with", Value::None());
  if (slices <= 0) r.FailText("slice: the number of slices must be above 0");
  const auto n = static_cast<size_t>(slices);
  r.CheckSize(n, sizeof(List) + sizeof(Value));
  r.heap().Step(n);
  const size_t each = items.size() / n, longer = items.size() % n;
  std::vector<Value> out;
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t count = each + (i < longer ? 1 : 0);
    std::vector<Value> row(items.begin() + static_cast<ptrdiff_t>(at),
                           items.begin() + static_cast<ptrdiff_t>(at + count));
    at += count;
    if (!fill.none() && i >= longer) row.push_back(fill);
    out.push_back(r.heap().NewList(std::move(row)));
  }
  return r.heap().NewList(std::move(out));
}

Value GroupBy(Rendering& r, const Value& value, CallArgs& args) {
  const Value attribute = args.Get(0, "attribute"), otherwise = args.Get(1, "default");
  const bool case_sensitive = Truth(args.Get(2, "case_sensitive", Value::Bool(false)));
  const std::vector<Value> items = r.Items(value);
  std::vector<Value> keys, out, group;
  for (const Value& item : items)
    keys.push_back(KeyOf(r, item, attribute, case_sensitive, otherwise));
  const std::vector<size_t> order = SortedOrder(r, keys, false);
  for (size_t i = 0; i < order.size(); ++i) {
    group.push_back(items[order[i]]);
    if (i + 1 < order.size() && Equal(keys[order[i]], keys[order[i + 1]])) continue;
    const Value key = KeyOf(r, group[0], attribute, true, otherwise);
    out.push_back(
        r.heap().NewList({key, r.heap().NewList(std::exchange(group, {}))}, Kind::kTuple));
  }
  return r.heap().NewList(std::move(out));
}

Value Abs(Rendering& r, const Value& value, CallArgs&) {
  r.NeedDefined(value);
  if (value.Is(Kind::kFloat)) return Value::Float(std::fabs(value.real));
  if (!value.integral() || value.AsInt() == INT64_MIN)
    r.Fail("bad operand type for abs(): '{}'", TypeName(value));
  return Value::Int(std::abs(value.AsInt()));
}

// Python rounds to the nearest decimal as it is printed, halves to even: printf does the same.
double RoundTo(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision >= 0)
    return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(precision)).c_str(), nullptr);
  if (precision < -308) return 0;
  const double scale = std::pow(10, static_cast<double>(-precision));
  return std::nearbyint(value / scale) * scale;
}

Value Round(Rendering& r, const Value& value, CallArgs& args) {
  r.NeedDefined(value);
  const int64_t precision = r.NeedInt(args.Get(0, "precision", Value::Int(0)), "round's precision");
  const Value method = args.Get(1, "method", r.Bytes("common", true));
  const std::string_view how = r.NeedText(method, "round's method").view();
  if (!value.number()) r.Fail("type {} doesn't define __round__ method", TypeName(value));
  if (how == "common") {
    if (value.integral() && precision >= 0) return Value::Int(value.AsInt());
    if (value.integral())
      return Value::Int(static_cast<int64_t>(RoundTo(value.AsFloat(), precision)));
    return Value::Float(RoundTo(value.real, precision));
  }
  if (how != "ceil" && how != "floor") r.FailText("method must be common, ceil or floor");
  const double scale = std::pow(10, static_cast<double>(precision));
  const double scaled = value.AsFloat() * scale;
  return Value::Float((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// Python's int() and float() of strings: white space around, underscores between digits.
std::string NumberText(std::string_view text) {
  const size_t begin = SkipSpace(text, 0, text.size()),
               end = SkipSpaceBack(text, begin, text.size());
  std::string out;
  for (size_t i = begin; i < end; ++i) {
    if (text[i] == '_' && i > begin && i + 1 < end && text[i - 1] != '_') continue;
    out += text[i];
  }
  return out;
}

bool ParseFloat(std::string_view text, double* out) {
  const std::string number = NumberText(text);
  if (number.empty() || number.find_first_of("xXpP(") != std::string::npos) return false;
  char* end = nullptr;
  *out = std::strtod(number.c_str(), &end);
  return end == number.c_str() + number.size();
}

bool ParseInt(std::string_view text, int64_t base, int64_t* out) {
  std::string number = NumberText(text);
  bool negative = false;
  if (!number.empty() && (number[0] == '-' || number[0] == '+')) {
    negative = number[0] == '-';
    number.erase(0, 1);
  }
  if (number.size() > 2 && number[0] == '0') {
    const char letter = static_cast<char>(number[1] | 32);
    const int64_t own = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (own != 0 && (base == own || base == 0)) {
      base = own;
      number.erase(0, 2);
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || number.empty() || number[0] == '-') return false;
  if (negative) number = std::string(1, '-') + number;
  const auto end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, *out, static_cast<int>(base));
  return error == std::errc() && stop == end;
}

bool FloatToInt(double d, Value* out) {
  if (!std::isfinite(d) || std::fabs(d) >= 9.2e18) return false;
  *out = Value::Int(static_cast<int64_t>(d));
  return true;
}

Value Int(Rendering& r, const Value& value, CallArgs& args) {
  r.NeedDefined(value);
  const Value otherwise = args.Get(0, "default", Value::Int(0));
  Value out = otherwise;
  if (value.integral()) return Value::Int(value.AsInt());
  if (value.Is(Kind::kFloat)) {
    FloatToInt(value.real, &out);
  } else if (value.string()) {
    int64_t number = 0;
    double real = 0;
    if (ParseInt(value.view(), r.NeedInt(args.Get(1, "base", Value::Int(10)), "int's base"),
                 &number))
      return Value::Int(number);
    if (ParseFloat(value.view(), &real)) FloatToInt(real, &out);
  }
  return out;
}

Value Float(Rendering& r, const Value& value, CallArgs& args) {
  r.NeedDefined(value);
  if (value.number()) return Value::Float(value.AsFloat());
  double real = 0;
  if (value.string() && ParseFloat(value.view(), &real)) return Value::Float(real);
  return args.Get(0, "default", Value::Float(0));
}

Value Attr(Rendering& r, const Value& value, CallArgs& args) {
  const Text& name = r.NeedText(args.Get(0, "name"), "attr's name");
  r.NeedDefined(value);
  // Attributes only, no elements.
  return value.mapping() && FindMethod(Kind::kDict, name.view()) == nullptr
             ? Value::Undefined(&name, value.kind)
             : r.Attribute(value, &name);
}

constexpr NamedBuiltin kListFilters[] = {
    {"abs", Abs},
    {"attr", Attr},
    {"batch", Batch},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"first", First},
    {"float", Float},
    {"groupby", GroupBy},
    {"int", Int},
    {"items", ItemPairs},
    {"join", Join},
    {"last", Last},
    {"length", Length},
    {"list", ListOf},
    {"map", Map},
    {"max", Max},
    {"min", Min},
    {"reject", Reject},
    {"rejectattr", RejectAttr},
    {"reverse", Reverse},
    {"round", Round},
    {"select", Select},
    {"selectattr", SelectAttr},
    {"slice", Slice},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

std::span<const NamedBuiltin> ListFilters() { return kListFilters; }

}  // namespace larder::model::jinja
