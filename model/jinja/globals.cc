// Functions that every template may call, and the methods of `loop`.
#include <ctime>

#include "model/jinja/functions.h"

namespace larder::model::inline jinja {
namespace {

Value Range(Rendering& r, const Value&, CallArgs& args) {
  if (args.positional.empty() || args.positional.size() > 3)
    r.FailText("range expected 1 to 3 arguments");
  std::vector<int64_t> bounds;
  for (const Value& v : args.positional) bounds.push_back(r.NeedInt(v, "range's argument"));
  const int64_t begin = bounds.size() > 1 ? bounds[0] : 0,
                end = bounds.size() > 1 ? bounds[1] : bounds[0];
  const int64_t step = bounds.size() > 2 ? bounds[2] : 1;
  if (step == 0) r.FailText("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (items.size() >= r.heap().limits().range_items)
      r.Fail("Range too big. The sandbox blocks ranges larger than {}.",
             r.heap().limits().range_items);
    items.push_back(Value::Int(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  r.heap().Step(items.size());
  return r.heap().NewList(std::move(items));
}

void Fill(Rendering& r, Dict& dict, CallArgs& args) {
  if (args.positional.size() > 1) r.FailText("expected at most 1 argument without name");
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.mapping()) {
      dict.entries = from.dict->entries;
    } else {
      for (const Value& item : r.Items(from)) {
        const std::vector<Value> pair = r.Items(item);
        if (pair.size() != 2)
          r.Fail("dictionary update sequence element has length {}; 2 is required", pair.size());
        if (!Hashable(pair[0])) r.Fail("unhashable type: '{}'", TypeName(pair[0]));
        r.heap().Step(1 + dict.entries.size() / 16);
        dict.Set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) dict.Set(r.Bytes(std::string(name), true), value);
  r.heap().Charge(dict.entries.size() * 2 * sizeof(Value));
}

Value MakeDict(Rendering& r, const Value&, CallArgs& args) {
  const Value dict = r.heap().NewDict();
  Fill(r, *dict.dict, args);
  return dict;
}

Value MakeNamespace(Rendering& r, const Value&, CallArgs& args) {
  const Value space = r.heap().NewDict(Kind::kNamespace);
  Fill(r, *space.dict, args);
  return space;
}

Value RaiseException(Rendering& r, const Value&, CallArgs& args) {
  r.FailText(r.ToText(args.Get(0, "message")).view());
}

Value StrftimeNow(Rendering& r, const Value&, CallArgs& args) {
  const std::string format = r.NeedText(args.Get(0, "format"), "strftime_now's format").bytes();
  if (format.size() > 256) r.FailText("strftime_now: the format is too long");
  const auto now = static_cast<std::time_t>(r.now_s());
  std::tm local{};
  ::localtime_r(&now, &local);
  char buffer[4096];
  // A byte before it tells an empty result from one that does not fit.
  const size_t bytes = std::strftime(buffer, sizeof buffer, (" " + format).c_str(), &local);
  return r.Bytes(bytes > 0 ? std::string(buffer + 1, bytes - 1) : std::string(), true);
}

// joiner(", ") is empty when it is called first: its state is a list of the separator, and later a
// mark.
Value JoinerCall(Rendering& r, const Value& self, CallArgs&) {
  if (self.list->items.size() > 1) return self.list->items[0];
  self.list->items.push_back(Value::None());
  return r.Bytes("", true);
}
Value Joiner(Rendering& r, const Value&, CallArgs& args) {
  Callable callable;
  callable.builtin = JoinerCall;
  callable.name = "joiner";
  callable.self = r.heap().NewList({args.Get(0, "sep", r.Bytes(", ", true))});
  return r.heap().NewCallable(callable);
}

Value Cycle(Rendering& r, const Value& self, CallArgs& args) {
  if (args.positional.empty()) r.FailText("no items for cycling given");
  return args.positional[self.loop->index % args.positional.size()];
}

Value Changed(Rendering&, const Value& self, CallArgs& args) {
  Loop& loop = *self.loop;
  bool same = loop.changed_before && loop.last_changed.size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i)
    same = Equal(loop.last_changed[i], args.positional[i]);
  loop.changed_before = true;
  loop.last_changed = args.positional;
  return Value::Bool(!same);
}

constexpr NamedBuiltin kGlobals[] = {
    {"dict", MakeDict},
    {"joiner", Joiner},
    {"namespace", MakeNamespace},
    {"raise_exception", RaiseException},
    {"range", Range},
    {"strftime_now", StrftimeNow},
};
constexpr NamedBuiltin kLoopMethods[] = {{"changed", Changed}, {"cycle", Cycle}};

}  // namespace

std::span<const NamedBuiltin> Globals() { return kGlobals; }
std::span<const NamedBuiltin> LoopMethods() { return kLoopMethods; }

}  // namespace larder::model::jinja
