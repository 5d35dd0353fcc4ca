// What stands behind "is".
#include <algorithm>

#include "model/jinja/functions.h"

namespace larder::model::inline jinja {
namespace {

Value Is(bool b) { return Value::Bool(b); }

Value Defined(Rendering&, const Value& v, CallArgs&) { return Is(!v.undefined()); }
Value IsUndefined(Rendering&, const Value& v, CallArgs&) { return Is(v.undefined()); }
Value IsNone(Rendering&, const Value& v, CallArgs&) { return Is(v.none()); }
Value IsString(Rendering&, const Value& v, CallArgs&) { return Is(v.string()); }
Value IsNumber(Rendering&, const Value& v, CallArgs&) { return Is(v.number()); }
Value IsInteger(Rendering&, const Value& v, CallArgs&) { return Is(v.Is(Kind::kInt)); }
Value IsFloat(Rendering&, const Value& v, CallArgs&) { return Is(v.Is(Kind::kFloat)); }
Value IsBoolean(Rendering&, const Value& v, CallArgs&) { return Is(v.Is(Kind::kBool)); }
Value IsMapping(Rendering&, const Value& v, CallArgs&) { return Is(v.mapping()); }
Value IsSequence(Rendering&, const Value& v, CallArgs&) {
  return Is(v.string() || v.sequence() || v.mapping() || v.undefined());
}
Value IsIterable(Rendering&, const Value& v, CallArgs&) {
  return Is(v.string() || v.sequence() || v.mapping() || v.undefined() || v.Is(Kind::kLoop));
}
Value IsTrue(Rendering&, const Value& v, CallArgs&) { return Is(v.Is(Kind::kBool) && v.boolean); }
Value IsFalse(Rendering&, const Value& v, CallArgs&) { return Is(v.Is(Kind::kBool) && !v.boolean); }
Value IsCallable(Rendering&, const Value& v, CallArgs&) {
  return Is(v.Is(Kind::kCallable) || v.undefined());
}
Value IsEscaped(Rendering&, const Value& v, CallArgs&) { return Is(v.string() && v.markup); }

Value Other(Rendering& r, CallArgs& args) {
  if (args.positional.empty()) r.FailText("a test lacks its argument");
  return args.positional[0];
}

Value Eq(Rendering& r, const Value& v, CallArgs& args) { return Is(Equal(v, Other(r, args))); }
Value Ne(Rendering& r, const Value& v, CallArgs& args) { return Is(!Equal(v, Other(r, args))); }
Value Lt(Rendering& r, const Value& v, CallArgs& args) {
  return Is(r.Order(v, Other(r, args)) < 0);
}
Value Le(Rendering& r, const Value& v, CallArgs& args) {
  return Is(r.Order(v, Other(r, args)) <= 0);
}
Value Gt(Rendering& r, const Value& v, CallArgs& args) {
  return Is(r.Order(v, Other(r, args)) > 0);
}
Value Ge(Rendering& r, const Value& v, CallArgs& args) {
  return Is(r.Order(v, Other(r, args)) >= 0);
}
Value In(Rendering& r, const Value& v, CallArgs& args) { return Is(r.Contains(Other(r, args), v)); }

Value SameAs(Rendering& r, const Value& v, CallArgs& args) {
  const Value other = Other(r, args);
  if (v.kind != other.kind) return Is(false);
  if (v.sequence()) return Is(v.list == other.list);
  if (v.mapping()) return Is(v.dict == other.dict);
  return Is(Equal(v, other));
}

bool Divides(Rendering& r, const Value& v, int64_t by) {
  r.NeedDefined(v);
  if (!v.integral()) r.Fail("a test wants an int, not {}", TypeName(v));
  if (by == 0) r.FailText("integer modulo by zero");
  return by == -1 || v.AsInt() % by == 0;
}
Value IsOdd(Rendering& r, const Value& v, CallArgs&) { return Is(!Divides(r, v, 2)); }
Value IsEven(Rendering& r, const Value& v, CallArgs&) { return Is(Divides(r, v, 2)); }
Value DivisibleBy(Rendering& r, const Value& v, CallArgs& args) {
  return Is(Divides(r, v, r.NeedInt(args.Get(0, "num"), "divisibleby's argument")));
}

bool AllCased(const Text& text, bool (*wanted)(uint32_t), bool (*refused)(uint32_t)) {
  bool any = false;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const uint32_t c = CharAt(text.view(), at, &bytes);
    if (refused(c)) return false;
    any = any || wanted(c);
  }
  return any;
}
Value IsLowerText(Rendering& r, const Value& v, CallArgs&) {
  return Is(AllCased(r.ToText(v), IsLowerChar, IsUpperChar));
}
Value IsUpperText(Rendering& r, const Value& v, CallArgs&) {
  return Is(AllCased(r.ToText(v), IsUpperChar, IsLowerChar));
}

Value IsFilter(Rendering&, const Value& v, CallArgs&) {
  return Is(v.string() && FindFilter(v.view()) != nullptr);
}
Value IsTest(Rendering&, const Value& v, CallArgs&) {
  return Is(v.string() && FindTest(v.view()) != nullptr);
}

constexpr NamedBuiltin kTests[] = {
    {"!=", Ne},
    {"<", Lt},
    {"<=", Le},
    {"==", Eq},
    {">", Gt},
    {">=", Ge},
    {"boolean", IsBoolean},
    {"callable", IsCallable},
    {"defined", Defined},
    {"divisibleby", DivisibleBy},
    {"eq", Eq},
    {"equalto", Eq},
    {"escaped", IsEscaped},
    {"even", IsEven},
    {"false", IsFalse},
    {"filter", IsFilter},
    {"float", IsFloat},
    {"ge", Ge},
    {"greaterthan", Gt},
    {"gt", Gt},
    {"in", In},
    {"integer", IsInteger},
    {"iterable", IsIterable},
    {"le", Le},
    {"lessthan", Lt},
    {"lower", IsLowerText},
    {"lt", Lt},
    {"mapping", IsMapping},
    {"ne", Ne},
    {"none", IsNone},
    {"number", IsNumber},
    {"odd", IsOdd},
    {"sameas", SameAs},
    {"sequence", IsSequence},
    {"string", IsString},
    {"test", IsTest},
    {"true", IsTrue},
    {"undefined", IsUndefined},
    {"upper", IsUpperText},
};

}  // namespace

std::span<const NamedBuiltin> Tests() { return kTests; }

}  // namespace larder::model::jinja
