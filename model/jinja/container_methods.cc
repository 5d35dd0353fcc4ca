// Python's methods of dict, list and tuple. Those that change a value change only this rendering's
// copy of it.
#include <algorithm>

#include "model/jinja/functions.h"

namespace larder::model::inline jinja {
namespace {

constexpr size_t kEntryBytes = 2 * sizeof(Value);

const Value& Key(Rendering& r, const Value& key) {
  if (!Hashable(key)) r.Fail("unhashable type: '{}'", TypeName(key));
  return key;
}

const Value* FindKey(Rendering& r, const Value& self, CallArgs& args) {
  const Value key = args.Get(0, "key");
  r.heap().Step(self.dict->entries.size() / 16);
  if (!args.Has(0, "key")) r.FailText("a dict's method lacks its key");
  return self.dict->Find(Key(r, key));
}

Value Get(Rendering& r, const Value& self, CallArgs& args) {
  const Value* found = FindKey(r, self, args);
  return found != nullptr ? *found : args.Get(1, "default", Value::None());
}

Value SetDefault(Rendering& r, const Value& self, CallArgs& args) {
  if (const Value* found = FindKey(r, self, args)) return *found;
  const Value value = args.Get(1, "default", Value::None());
  r.heap().Charge(kEntryBytes);
  self.dict->Set(args.Get(0, "key"), value);
  return value;
}

Value PopKey(Rendering& r, const Value& self, CallArgs& args) {
  const Value* found = FindKey(r, self, args);
  if (found == nullptr) {
    if (!args.Has(1, "default")) r.Fail("KeyError: {}", Repr(args.Get(0, "key")));
    return args.Get(1, "default");
  }
  const Value value = *found;
  self.dict->Erase(args.Get(0, "key"));
  return value;
}

Value PopItem(Rendering& r, const Value& self, CallArgs&) {
  if (self.dict->entries.empty()) r.FailText("popitem(): dictionary is empty");
  const auto [key, value] = self.dict->entries.back();
  self.dict->entries.pop_back();
  return r.heap().NewList({key, value}, Kind::kTuple);
}

Value DictItems(Rendering& r, const Value& self, CallArgs&) {
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict->entries)
    out.push_back(r.heap().NewList({key, value}, Kind::kTuple));
  r.heap().Step(out.size());
  return r.heap().NewList(std::move(out));
}

Value Keys(Rendering& r, const Value& self, CallArgs&) { return r.heap().NewList(r.Items(self)); }

Value Values(Rendering& r, const Value& self, CallArgs&) {
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict->entries) out.push_back(value);
  return r.heap().NewList(std::move(out));
}

Value Update(Rendering& r, const Value& self, CallArgs& args) {
  const Value from = args.Get(0, "other", Value::None());
  std::vector<std::pair<Value, Value>> entries;
  if (from.mapping()) {
    entries = from.dict->entries;
  } else if (!from.none()) {
    for (const Value& item : r.Items(from)) {
      const std::vector<Value> pair = r.Items(item);
      if (pair.size() != 2) r.FailText("update wants pairs");
      entries.emplace_back(Key(r, pair[0]), pair[1]);
    }
  }
  for (const auto& [name, value] : args.named)
    entries.emplace_back(r.Bytes(std::string(name), true), value);
  for (const auto& [key, value] : entries) {
    r.heap().Step(1 + self.dict->entries.size() / 16);
    r.heap().Charge(kEntryBytes);
    self.dict->Set(key, value);
  }
  return Value::None();
}

Value CopyDict(Rendering& r, const Value& self, CallArgs&) {
  const Value copy = r.heap().NewDict();
  r.heap().Charge(self.dict->entries.size() * kEntryBytes);
  copy.dict->entries = self.dict->entries;
  return copy;
}

Value ClearDict(Rendering&, const Value& self, CallArgs&) {
  self.dict->entries.clear();
  return Value::None();
}

// ---- Lists

Value Append(Rendering& r, const Value& self, CallArgs& args) {
  if (args.positional.size() != 1) r.FailText("append takes exactly one argument");
  r.heap().Charge(sizeof(Value));
  self.list->items.push_back(args.positional[0]);
  return Value::None();
}

Value Extend(Rendering& r, const Value& self, CallArgs& args) {
  const Value from = args.Get(0, "iterable");
  r.NeedDefined(from);
  const std::vector<Value> items = r.Items(from);
  r.heap().Charge(items.size() * sizeof(Value));
  self.list->items.insert(self.list->items.end(), items.begin(), items.end());
  return Value::None();
}

Value Insert(Rendering& r, const Value& self, CallArgs& args) {
  if (args.positional.size() != 2) r.FailText("insert takes exactly two arguments");
  auto& items = self.list->items;
  const auto count = static_cast<int64_t>(items.size());
  int64_t at = r.NeedInt(args.positional[0], "insert's index");
  if (at < 0) at = at < -count ? 0 : at + count;
  r.heap().Charge(sizeof(Value));
  r.heap().Step(items.size() / 64);
  items.insert(items.begin() + static_cast<ptrdiff_t>(std::min(at, count)), args.positional[1]);
  return Value::None();
}

Value PopIndex(Rendering& r, const Value& self, CallArgs& args) {
  auto& items = self.list->items;
  const auto count = static_cast<int64_t>(items.size());
  int64_t at = r.NeedInt(args.Get(0, "index", Value::Int(-1)), "pop's index");
  if (count == 0) r.FailText("pop from empty list");
  if (at < -count || at >= count) r.FailText("pop index out of range");
  if (at < 0) at += count;
  r.heap().Step(items.size() / 64);
  const Value value = items[static_cast<size_t>(at)];
  items.erase(items.begin() + static_cast<ptrdiff_t>(at));
  return value;
}

std::vector<Value>::iterator FindItem(Rendering& r, const Value& self, CallArgs& args) {
  const Value what = args.Get(0, "value");
  r.heap().Step(self.list->items.size());
  return std::find_if(self.list->items.begin(), self.list->items.end(),
                      [&](const Value& v) { return Equal(v, what); });
}

Value Remove(Rendering& r, const Value& self, CallArgs& args) {
  const auto found = FindItem(r, self, args);
  if (found == self.list->items.end()) r.FailText("list.remove(x): x not in list");
  self.list->items.erase(found);
  return Value::None();
}

Value Index(Rendering& r, const Value& self, CallArgs& args) {
  const auto found = FindItem(r, self, args);
  if (found == self.list->items.end()) r.Fail("{} is not in list", Repr(args.Get(0, "value")));
  return Value::Int(found - self.list->items.begin());
}

Value Count(Rendering& r, const Value& self, CallArgs& args) {
  const Value what = args.Get(0, "value");
  r.heap().Step(self.list->items.size());
  return Value::Int(std::count_if(self.list->items.begin(), self.list->items.end(),
                                  [&](const Value& v) { return Equal(v, what); }));
}

Value ReverseInPlace(Rendering& r, const Value& self, CallArgs&) {
  r.heap().Step(self.list->items.size() / 8);
  std::reverse(self.list->items.begin(), self.list->items.end());
  return Value::None();
}

Value CopyList(Rendering& r, const Value& self, CallArgs&) {
  return r.heap().NewList(self.list->items);
}

Value ClearList(Rendering&, const Value& self, CallArgs&) {
  self.list->items.clear();
  return Value::None();
}

constexpr NamedBuiltin kDict[] = {
    {"clear", ClearDict}, {"copy", CopyDict}, {"get", Get},         {"items", DictItems},
    {"keys", Keys},       {"pop", PopKey},    {"popitem", PopItem}, {"setdefault", SetDefault},
    {"update", Update},   {"values", Values},
};
constexpr NamedBuiltin kList[] = {
    {"append", Append}, {"clear", ClearList},
    {"copy", CopyList}, {"count", Count},
    {"extend", Extend}, {"index", Index},
    {"insert", Insert}, {"pop", PopIndex},
    {"remove", Remove}, {"reverse", ReverseInPlace},
};
constexpr NamedBuiltin kTuple[] = {{"count", Count}, {"index", Index}};

}  // namespace

std::span<const NamedBuiltin> DictMethods() { return kDict; }
std::span<const NamedBuiltin> ListMethods() { return kList; }
std::span<const NamedBuiltin> TupleMethods() { return kTuple; }

}  // namespace larder::model::jinja
