// Attributes, elements, arithmetic, iteration: what Python's operators do for each type.
#include <algorithm>
#include <cmath>

#include "model/jinja_language/rendering.h"

namespace larder::model::inline jinja_language {
namespace {

Value LoopAttribute(Rendering& rendering, const Value& value, const Text* name) {
  const Loop& loop = *value.loop;
  const auto index = static_cast<int64_t>(loop.index),
             count = static_cast<int64_t>(loop.items.size());
  const std::string_view n = name->view();
  if (n == "index") return Value::Int(index + 1);
  if (n == "index0") return Value::Int(index);
  if (n == "first") return Value::Bool(index == 0);
  if (n == "last") return Value::Bool(index + 1 == count);
  if (n == "length") return Value::Int(count);
  if (n == "revindex") return Value::Int(count - index);
  if (n == "revindex0") return Value::Int(count - index - 1);
  if (n == "depth") return Value::Int(1);
  if (n == "depth0") return Value::Int(0);
  if (n == "previtem") return index > 0 ? loop.items[loop.index - 1] : Value::Undefined(name);
  if (n == "nextitem")
    return index + 1 < count ? loop.items[loop.index + 1] : Value::Undefined(name);
  if (const Builtin method = rendering.builtins().method(Kind::kLoop, n)) {
    Callable callable;
    callable.builtin = method;
    callable.self = value;
    callable.name = n;
    return rendering.heap().NewCallable(callable);
  }
  return Value::Undefined(name, value.kind);
}

}  // namespace

Value Rendering::Attribute(const Value& object, const Text* name) {
  NeedDefined(object);
  switch (object.kind) {
    case Kind::kLoop:
      return LoopAttribute(*this, object, name);
    case Kind::kNamespace:
      if (const Value* found = object.dict->Find(name->view())) return *found;
      break;
    default:
      if (const Builtin method = builtins().method(object.kind, name->view())) {
        Callable callable;
        callable.builtin = method;
        callable.self = object;
        callable.name = name->view();
        return heap_.NewCallable(callable);
      }
      if (object.mapping()) {
        heap_.Step(object.dict->entries.size() / 16);
        if (const Value* found = object.dict->Find(name->view())) return *found;
      }
  }
  return Value::Undefined(name, object.kind);
}

Value Rendering::Item(const Value& object, const Value& key) {
  NeedDefined(object);
  if (object.mapping()) {
    heap_.Step(object.dict->entries.size() / 16);
    if (const Value* found = Hashable(key) ? object.dict->Find(key) : nullptr) return *found;
  } else if (object.sequence() && key.integral()) {
    const auto count = static_cast<int64_t>(object.list->items.size());
    const int64_t index = key.AsInt() < 0 ? key.AsInt() + count : key.AsInt();
    if (index >= 0 && index < count) return object.list->items[static_cast<size_t>(index)];
  } else if (object.string() && key.integral()) {
    const std::string_view text = object.view();
    heap_.Step(text.size() / 64);
    const auto count = static_cast<int64_t>(key.AsInt() < 0 ? CharCount(text) : text.size());
    const int64_t index = key.AsInt() < 0 ? key.AsInt() + count : key.AsInt();
    if (index >= 0 && index < count) {
      const size_t at = CharOffset(text, static_cast<size_t>(index));
      if (at < text.size()) return heap_.String(object.text->Slice(at, at + CharBytes(text, at)));
    }
  }
  if (key.string()) {
    return object.mapping() && builtins().method(Kind::kDict, key.view()) == nullptr
               ? Value::Undefined(key.text, object.kind)
               : Attribute(object, key.text);
  }
  return Value::Undefined(heap_.String(Repr(key), true).text, object.kind, true);
}

std::vector<Value> Rendering::Items(const Value& value) {
  std::vector<Value> items;
  switch (value.kind) {
    case Kind::kUndefined:
      return items;
    case Kind::kString: {
      const std::string_view text = value.view();
      heap_.Step(text.size());
      CheckSize(text.size(), sizeof(Text) + sizeof(Value));
      for (size_t at = 0; at < text.size();) {
        const size_t bytes = CharBytes(text, at);
        items.push_back(heap_.String(value.text->Slice(at, at + bytes)));
        at += bytes;
      }
      return items;
    }
    case Kind::kList:
    case Kind::kTuple:
      heap_.Step(value.list->items.size() / 8);
      return value.list->items;
    case Kind::kDict:
      items.reserve(value.dict->entries.size());
      for (const auto& [key, v] : value.dict->entries) items.push_back(key);
      return items;
    case Kind::kLoop:
      return value.loop->items;
    default:
      Fail("'{}' object is not iterable", TypeName(value));
  }
}

size_t Rendering::Length(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      heap_.Step(value.text->size() / 64);
      return CharCount(value.view());
    case Kind::kList:
    case Kind::kTuple:
      return value.list->items.size();
    case Kind::kDict:
      return value.dict->entries.size();
    case Kind::kLoop:
      return value.loop->items.size();
    default:
      Fail("object of type '{}' has no len()", TypeName(value));
  }
}

bool Rendering::Contains(const Value& container, const Value& value) {
  switch (container.kind) {
    case Kind::kString:
      NeedDefined(value);
      if (!value.string())
        Fail("'in <string>' requires string as left operand, not {}", TypeName(value));
      heap_.Step(container.text->size() / 64);
      return container.view().find(value.view()) != std::string_view::npos;
    case Kind::kDict:
      if (!Hashable(value)) Fail("unhashable type: '{}'", TypeName(value));
      heap_.Step(container.dict->entries.size() / 16);
      return container.dict->Find(value) != nullptr;
    default: {
      for (const Value& item : Items(container)) {
        heap_.Step();
        if (Equal(item, value)) return true;
      }
      return false;
    }
  }
}

Value EscapeHtml(Rendering& r, const Value& value) {
  if (value.string() && value.markup) return value;
  const Text text = r.ToText(value);
  Text out;
  text.ForEachPart(0, text.size(), [&](std::string_view part, bool trusted) {
    for (const char c : part) {
      switch (c) {
        case '&':
          out.Append("&amp;", trusted);
          break;
        case '<':
          out.Append("&lt;", trusted);
          break;
        case '>':
          out.Append("&gt;", trusted);
          break;
        case '\'':
          out.Append("&#39;", trusted);
          break;
        case '"':
          out.Append("&#34;", trusted);
          break;
        default:
          out.Append({&c, 1}, trusted);
      }
    }
  });
  Value escaped = r.heap().String(std::move(out));
  escaped.markup = true;
  return escaped;
}

std::vector<size_t> SliceIndices(Rendering& rendering, size_t count, const Value& begin,
                                 const Value& end, const Value& step) {
  const auto size = static_cast<int64_t>(count);
  const int64_t by = step.none() ? 1 : rendering.NeedInt(step, "a slice's step");
  if (by == 0) rendering.FailText("slice step cannot be zero");
  const auto bound = [&](const Value& v, int64_t open, std::string_view what) {
    if (v.none()) return open;
    int64_t at = rendering.NeedInt(v, what);
    const int64_t lowest = by < 0 ? -1 : 0, highest = by < 0 ? size - 1 : size;
    if (at < 0) at = at < -size ? lowest : at + size;
    return std::clamp(at, lowest, highest);
  };
  int64_t at = bound(begin, by < 0 ? size - 1 : 0, "a slice's start");
  const int64_t stop = bound(end, by < 0 ? -1 : size, "a slice's end");
  std::vector<size_t> indices;
  // Behind the first step outside there is nothing, so that a huge step does not overflow.
  while (by > 0 ? at < stop : at > stop) {
    indices.push_back(static_cast<size_t>(at));
    if (by > 0 ? by >= stop - at : by <= stop - at) break;
    at += by;
  }
  return indices;
}

Value Rendering::EvalSlice(const Node& node) {
  const Value object = Eval(*node.a);
  NeedDefined(object);
  Value bounds[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (node.items[i] != nullptr) bounds[i] = Eval(*node.items[i]);
  }
  line_ = node.line;
  if (object.sequence()) {
    std::vector<Value> items;
    heap_.Step(object.list->items.size() / 8);
    for (const size_t i :
         SliceIndices(*this, object.list->items.size(), bounds[0], bounds[1], bounds[2]))
      items.push_back(object.list->items[i]);
    return heap_.NewList(std::move(items), object.kind);
  }
  if (!object.string()) Fail("'{}' object is not subscriptable", TypeName(object));
  const std::string_view text = object.view();
  heap_.Step(text.size() / 8);
  CheckSize(text.size(), sizeof(size_t));
  const std::vector<size_t> indices =
      SliceIndices(*this, CharCount(text), bounds[0], bounds[1], bounds[2]);
  if (indices.empty()) return Bytes("", true);
  if (indices.back() - indices.front() + 1 == indices.size()) {
    const size_t begin = CharOffset(text, indices.front());
    return heap_.String(
        object.text->Slice(begin, begin + CharOffset(text.substr(begin), indices.size())));
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += CharBytes(text, at)) offsets.push_back(at);
  offsets.push_back(text.size());
  Text out;
  for (const size_t i : indices) {
    const size_t borders = object.text->borders();
    heap_.Step(1 + borders / 16);
    out.Append(*object.text, offsets[i], offsets[i + 1]);
  }
  return heap_.String(std::move(out));
}

// ---- Arithmetic

Value Rendering::Add(const Value& a, const Value& b) {
  NeedDefined(a);
  NeedDefined(b);
  if (a.string() && b.string()) {
    const bool markup = a.markup || b.markup;
    const Value left = markup ? EscapeHtml(*this, a) : a, right = markup ? EscapeHtml(*this, b) : b;
    CheckSize(left.text->size() + right.text->size(), 1);
    Text text = *left.text;
    text.Append(*right.text);
    Value value = heap_.String(std::move(text));
    value.markup = markup;
    return value;
  }
  if (a.sequence() && a.kind == b.kind) {
    std::vector<Value> items = a.list->items;
    items.insert(items.end(), b.list->items.begin(), b.list->items.end());
    return heap_.NewList(std::move(items), a.kind);
  }
  if (a.string() || b.string()) {
    const Value& other = a.string() ? b : a;
    Fail("can only concatenate str (not \"{}\") to str", TypeName(other));
  }
  if (a.integral() && b.integral()) return IntArithmetic(Op::kAdd, a.AsInt(), b.AsInt());
  if (a.number() && b.number()) return Value::Float(a.AsFloat() + b.AsFloat());
  Fail("unsupported operand type(s) for +: '{}' and '{}'", TypeName(a), TypeName(b));
}

Value Rendering::Repeat(const Value& value, int64_t times) {
  const size_t count = times < 0 ? 0 : static_cast<size_t>(times);
  if (value.string()) {
    if (value.text->empty()) return value;
    CheckSize(count, value.text->size());
    heap_.Step(count);
    Text text;
    for (size_t i = 0; i < count; ++i) text.Append(*value.text);
    return heap_.String(std::move(text));
  }
  std::vector<Value> items;
  if (!value.list->items.empty()) {
    CheckSize(count, value.list->items.size() * sizeof(Value));
    heap_.Step(count);
    for (size_t i = 0; i < count; ++i)
      items.insert(items.end(), value.list->items.begin(), value.list->items.end());
  }
  return heap_.NewList(std::move(items), value.kind);
}

Value Rendering::EvalArithmetic(const Node& node) {
  const Value a = Eval(*node.a);
  if (node.op == Op::kNegative || node.op == Op::kPositive) {
    NeedDefined(a);
    const bool negative = node.op == Op::kNegative;
    if (a.Is(Kind::kFloat)) return Value::Float(negative ? -a.real : a.real);
    if (!a.integral())
      Fail("bad operand type for unary {}: '{}'", negative ? '-' : '+', TypeName(a));
    return negative ? IntArithmetic(Op::kSubtract, 0, a.AsInt()) : Value::Int(a.AsInt());
  }
  const Value b = Eval(*node.b);
  line_ = node.line;
  if (node.op == Op::kAdd) return Add(a, b);
  NeedDefined(a);
  if (node.op == Op::kModulo && a.string()) return FormatPercent(*this, *a.text, b);
  NeedDefined(b);
  if (node.op == Op::kMultiply) {
    if ((a.string() || a.sequence()) && b.integral()) return Repeat(a, b.AsInt());
    if ((b.string() || b.sequence()) && a.integral()) return Repeat(b, a.AsInt());
  }
  if (!a.number() || !b.number())
    Fail("unsupported operand type(s) for an operator: '{}' and '{}'", TypeName(a), TypeName(b));
  if (a.integral() && b.integral() && node.op != Op::kDivide)
    return IntArithmetic(node.op, a.AsInt(), b.AsInt());
  return FloatArithmetic(node.op, a.AsFloat(), b.AsFloat());
}

Value Rendering::IntArithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Op::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::kFloorDivide:
    case Op::kModulo: {
      if (b == 0) FailText("integer division or modulo by zero");
      if (b == -1) {
        if (op == Op::kModulo) return Value::Int(0);
        return IntArithmetic(Op::kSubtract, 0, a);
      }
      int64_t quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
      }
      return Value::Int(op == Op::kModulo ? rest : quotient);
    }
    default: {  // kPower
      if (b < 0) return FloatArithmetic(op, static_cast<double>(a), static_cast<double>(b));
      result = 1;
      for (int64_t base = a; b > 0 && !overflow; b >>= 1) {
        if ((b & 1) != 0) overflow = __builtin_mul_overflow(result, base, &result);
        if (b > 1 && !overflow) overflow = __builtin_mul_overflow(base, base, &base);
      }
    }
  }
  if (overflow) FailText("an integer becomes too large (64 bits)");
  return Value::Int(result);
}

Value Rendering::FloatArithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kSubtract:
      return Value::Float(a - b);
    case Op::kMultiply:
      return Value::Float(a * b);
    case Op::kPower:
      if (a == 0 && b < 0) FailText("0.0 cannot be raised to a negative power");
      return Value::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) FailText("float division by zero");
  if (op == Op::kDivide) return Value::Float(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return Value::Float(op == Op::kModulo ? rest : std::floor((a - rest) / b + 0.5));
}

}  // namespace larder::model::jinja_language
