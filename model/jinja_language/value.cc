#include "model/jinja_language/value.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace larder::model::inline jinja_language {

namespace {

void CheckDepth(size_t depth) {
  if (depth > kMaxValueDepth) throw LimitReached{"a list or dict is nested too deeply"};
}

// Equal keys are equal values of one text, so comparing strings first is worth it.
bool SameKey(const Value& a, const Value& b) {
  if (a.string() && b.string()) return a.view() == b.view();
  return Equal(a, b);
}

template <typename T>
int Order(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

}  // namespace

Value CallArgs::Get(size_t at, std::string_view name, Value otherwise) const {
  if (at < positional.size()) return positional[at];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return otherwise;
}

bool CallArgs::Has(size_t at, std::string_view name) const {
  if (at < positional.size()) return true;
  for (const auto& [key, value] : named) {
    if (key == name) return true;
  }
  return false;
}

const Value* Dict::Find(const Value& key) const {
  for (const auto& [k, v] : entries) {
    if (SameKey(k, key)) return &v;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [k, v] : entries) {
    if (k.string() && k.view() == key) return &v;
  }
  return nullptr;
}

void Dict::Set(const Value& key, const Value& value) {
  for (auto& [k, v] : entries) {
    if (SameKey(k, key)) {
      v = value;
      return;
    }
  }
  entries.emplace_back(key, value);
}

bool Dict::Erase(const Value& key) {
  for (auto it = entries.begin(); it != entries.end(); ++it) {
    if (SameKey(it->first, key)) {
      entries.erase(it);
      return true;
    }
  }
  return false;
}

void Heap::Charge(size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > limits_.memory_bytes)
    throw LimitReached{fmt::format("the template makes more than {} bytes of strings and lists",
                                   limits_.memory_bytes)};
}

void Heap::OutOfSteps() const {
  throw LimitReached{fmt::format("the template takes more than {} steps", limits_.steps)};
}

Value Heap::String(Text text) {
  Charge(sizeof(Text) + text.size() + 4 * text.borders());
  return Value::String(&texts_.emplace_back(std::move(text)));
}

Value Heap::NewList(std::vector<Value> items, Kind kind) {
  Charge(sizeof(List) + items.size() * sizeof(Value));
  Value v;
  v.kind = kind;
  v.list = &lists_.emplace_back();
  v.list->items = std::move(items);
  return v;
}

Value Heap::NewDict(Kind kind) {
  Charge(sizeof(Dict));
  Value v;
  v.kind = kind;
  v.dict = &dicts_.emplace_back();
  return v;
}

Value Heap::NewCallable(Callable callable) {
  Charge(sizeof(Callable));
  Value v;
  v.kind = Kind::kCallable;
  v.callable = &callables_.emplace_back(callable);
  return v;
}

Value Heap::NewLoop(Loop loop) {
  Charge(sizeof(Loop) + loop.items.size() * sizeof(Value));
  Value v;
  v.kind = Kind::kLoop;
  v.loop = &loops_.emplace_back(std::move(loop));
  return v;
}

bool Truth(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return v.boolean;
    case Kind::kInt:
      return v.integer != 0;
    case Kind::kFloat:
      return v.real != 0;
    case Kind::kString:
      return !v.text->empty();
    case Kind::kList:
    case Kind::kTuple:
      return !v.list->items.empty();
    case Kind::kDict:
      return !v.dict->entries.empty();
    default:
      return true;
  }
}

bool Equal(const Value& a, const Value& b, size_t depth) {
  CheckDepth(depth);
  if (a.number() && b.number()) {
    return a.integral() && b.integral() ? a.AsInt() == b.AsInt() : a.AsFloat() == b.AsFloat();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.view() == b.view();
    case Kind::kList:
    case Kind::kTuple: {
      if (a.list == b.list) return true;
      if (a.list->items.size() != b.list->items.size()) return false;
      for (size_t i = 0; i < a.list->items.size(); ++i) {
        if (!Equal(a.list->items[i], b.list->items[i], depth + 1)) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (a.dict == b.dict) return true;
      if (a.dict->entries.size() != b.dict->entries.size()) return false;
      for (const auto& [key, value] : a.dict->entries) {
        const Value* other = b.dict->Find(key);
        if (other == nullptr || !Equal(value, *other, depth + 1)) return false;
      }
      return true;
    }
    case Kind::kCallable:
      return a.callable == b.callable;
    case Kind::kLoop:
      return a.loop == b.loop;
    default:
      return a.dict == b.dict;
  }
}

int Compare(const Value& a, const Value& b, size_t depth) {
  CheckDepth(depth);
  if (a.number() && b.number()) {
    return a.integral() && b.integral() ? Order(a.AsInt(), b.AsInt())
                                        : Order(a.AsFloat(), b.AsFloat());
  }
  if (a.string() && b.string()) return Order(a.view(), b.view());
  if (a.sequence() && a.kind == b.kind) {
    const auto &x = a.list->items, &y = b.list->items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equal(x[i], y[i], depth + 1)) return Compare(x[i], y[i], depth + 1);
    }
    return Order(x.size(), y.size());
  }
  throw TypeMismatch{fmt::format("cannot order '{}' and '{}'", TypeName(a), TypeName(b))};
}

bool Hashable(const Value& v) {
  if (v.kind == Kind::kList || v.kind == Kind::kDict) return false;
  if (v.kind == Kind::kTuple) {
    for (const Value& item : v.list->items) {
      if (item.sequence() ? item.kind == Kind::kList : !Hashable(item)) return false;
    }
  }
  return true;
}

std::string_view TypeName(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "";
}

std::string ObjectTypeName(Kind kind) {
  Value v;
  v.kind = kind;
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kNamespace:
      return "jinja2.utils.Namespace object";
    case Kind::kLoop:
      return "jinja2.runtime.LoopContext object";
    default:
      return std::string(TypeName(v)) + " object";
  }
}

std::string UndefinedText(const Value& v) {
  const std::string_view name = v.text == nullptr ? "value" : v.text->view();
  if (v.owner == Kind::kUndefined) return fmt::format("'{}' is undefined", name);
  if (v.element) return fmt::format("{} has no element {}", ObjectTypeName(v.owner), name);
  return fmt::format("'{}' has no attribute '{}'", ObjectTypeName(v.owner), name);
}

std::string PrintFloat(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  char* const end =
      std::to_chars(buffer, buffer + sizeof buffer - 1, d, std::chars_format::scientific).ptr;
  *end = '\0';
  // [-]d[.ddd]e[+-]xx: Python writes it without exponent where that is from -4 to 15.
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  const bool small = text[e + 1] == '-';
  int exponent = 0;
  std::from_chars(text.data() + e + 2, text.data() + text.size(), exponent);
  if (small) exponent = -exponent;
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  std::string out(negative ? 1 : 0, '-');
  const auto size = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (size > 1) out.append(".").append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    const int magnitude = std::abs(exponent);
    if (magnitude < 10) out += '0';
    return out + std::to_string(magnitude);
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (size <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - size), '0') + ".0";
  const size_t point = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

std::string ReprText(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  constexpr char kHex[] = "0123456789abcdef";
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const uint32_t c = CharAt(text, at, &bytes);
    const auto hex = [&](char letter, int digits) {
      out += {'\\', letter};
      for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[c >> shift & 15];
    };
    if (c == static_cast<uint8_t>(quote) || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f || (c >= 0x80 && c <= 0xA0) || c == 0xAD) {
      hex('x', 2);
    } else if (c != ' ' && c < 0x10000 &&
               (IsSpaceChar(c) || (c >= 0x200B && c <= 0x200F) || c == 0xFEFF ||
                (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
                (c >= 0xE000 && c <= 0xF8FF))) {
      hex('u', 4);
    } else {
      out += text.substr(at, bytes);
    }
  }
  return out + quote;
}

std::string Repr(const Value& v, size_t depth) {
  CheckDepth(depth);
  switch (v.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kString:
      return ReprText(v.view());
    case Kind::kList:
    case Kind::kTuple: {
      const bool list = v.kind == Kind::kList;
      std::string out = list ? "[" : "(";
      for (const Value& item : v.list->items) {
        if (out.size() > 1) out += ", ";
        out += Repr(item, depth + 1);
      }
      if (!list && v.list->items.size() == 1) out += ",";
      return out + (list ? "]" : ")");
    }
    case Kind::kDict: {
      std::string out = "{";
      for (const auto& [key, value] : v.dict->entries) {
        if (out.size() > 1) out += ", ";
        out += Repr(key, depth + 1) + ": " + Repr(value, depth + 1);
      }
      return out + "}";
    }
    case Kind::kNamespace: {
      Value dict = v;
      dict.kind = Kind::kDict;
      return fmt::format("<Namespace {}>", Repr(dict, depth + 1));
    }
    default:
      return Print(v).bytes();
  }
}

Text Print(const Value& v) {
  switch (v.kind) {
    case Kind::kUndefined:
      return {};
    case Kind::kNone:
      return {"None", true};
    case Kind::kBool:
      return {v.boolean ? "True" : "False", true};
    case Kind::kInt:
      return {std::to_string(v.integer), true};
    case Kind::kFloat:
      return {v.whole() ? std::to_string(v.AsNatural()) : PrintFloat(v.real), true};
    case Kind::kString:
      return *v.text;
    case Kind::kCallable:
      return {v.callable->macro != nullptr ? fmt::format("<Macro '{}'>", v.callable->name)
                                           : fmt::format("<function {}>", v.callable->name),
              true};
    case Kind::kLoop:
      return {fmt::format("<LoopContext {}/{}>", v.loop->index + 1, v.loop->items.size()), true};
    default:
      return {Repr(v), false};
  }
}

}  // namespace larder::model::jinja_language
