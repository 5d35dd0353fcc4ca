// Values of a running template, with Python's rules for truth, equality, order and printing. A
// Value is 16 bytes; what it points to belongs to the Heap of one rendering, or (constants) to the
// parsed template. Nothing is freed before the rendering ends: no reference counts, and lists that
// hold themselves do no harm.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja_language/limits.h"
#include "model/jinja_language/text.h"

namespace larder::model::inline jinja_language {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kCallable,
  kLoop,
};

struct List;
struct Dict;
struct Callable;
struct Loop;

struct Value {
  Kind kind = Kind::kUndefined;
  Kind owner = Kind::kUndefined;  // kUndefined: the kind of value that lacks the attribute;
                                  // kUndefined if a variable is missing
  bool element = false;           // kUndefined: it was looked up as an element, not as an attribute
  bool markup = false;            // kString: escaped HTML (the filters safe and escape make it)
  // kFloat: if it is a whole number too large for a kInt, the difference between it and `real`;
  // otherwise kNotWhole.
  static constexpr int16_t kNotWhole = INT16_MIN;
  int16_t behind = kNotWhole;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
    const Text* text;  // kString; kUndefined: the name, or null
    List* list;        // kList, kTuple
    Dict* dict;        // kDict, kNamespace
    Callable* callable;
    Loop* loop;
  };

  static Value None() { return Of(Kind::kNone); }
  static Value Bool(bool b) {
    Value v = Of(Kind::kBool);
    v.boolean = b;
    return v;
  }
  static Value Int(int64_t i) {
    Value v = Of(Kind::kInt);
    v.integer = i;
    return v;
  }
  static Value Float(double d) {
    Value v = Of(Kind::kFloat);
    v.real = d;
    return v;
  }
  // A number of 2^63 or more: computed with as a float, but printed exactly.
  static Value Whole(uint64_t natural) {
    Value v = Float(static_cast<double>(natural));
    v.behind = static_cast<int16_t>(static_cast<__int128>(natural) - static_cast<__int128>(v.real));
    return v;
  }
  bool whole() const { return kind == Kind::kFloat && behind != kNotWhole; }
  uint64_t AsNatural() const {  // the number of a whole() value
    return static_cast<uint64_t>(static_cast<__int128>(real) + behind);
  }
  static Value String(const Text* t) {
    Value v = Of(Kind::kString);
    v.text = t;
    return v;
  }
  static Value Undefined(const Text* name, Kind owner = Kind::kUndefined, bool element = false) {
    Value v;
    v.owner = owner;
    v.element = element;
    v.text = name;
    return v;
  }

  bool Is(Kind k) const { return kind == k; }
  bool undefined() const { return kind == Kind::kUndefined; }
  bool none() const { return kind == Kind::kNone; }
  bool string() const { return kind == Kind::kString; }
  bool sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  bool mapping() const { return kind == Kind::kDict; }
  bool integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool number() const { return integral() || kind == Kind::kFloat; }
  int64_t AsInt() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  double AsFloat() const { return kind == Kind::kFloat ? real : static_cast<double>(AsInt()); }
  std::string_view view() const { return text->view(); }

 private:
  static Value Of(Kind k) {
    Value v;
    v.kind = k;
    return v;
  }
};

struct List {
  std::vector<Value> items;
};

// In order of insertion. Look-ups go through the entries one after another: the dicts of chats are
// small.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, const Value& value);
  bool Erase(const Value& key);
};

class Rendering;
struct Scope;
struct Node;

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;  // names belong to the template or to the
                                                          // heap

  // Argument `at`, or the one of that name, or `otherwise`.
  Value Get(size_t at, std::string_view name, Value otherwise = {}) const;
  bool Has(size_t at, std::string_view name) const;
};
using Builtin = Value (*)(Rendering&, const Value& self, CallArgs&);

// A method with the value it was taken from, a global function, or a macro with the scope it was
// defined in.
struct Callable {
  Builtin builtin = nullptr;
  Value self;
  std::string_view name;
  const Node* macro = nullptr;
  Scope* scope = nullptr;
};

struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  size_t depth = 1;
  bool changed_before = false;  // loop.changed() was called
  std::vector<Value> last_changed;
};

struct LimitReached {
  std::string text;
};

class Heap {
 public:
  explicit Heap(const JinjaLimits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Value String(Text text);
  Value String(std::string text, bool trusted) { return String(Text(std::move(text), trusted)); }
  Value NewList(std::vector<Value> items, Kind kind = Kind::kList);
  Value NewDict(Kind kind = Kind::kDict);
  Value NewCallable(Callable callable);
  Value NewLoop(Loop loop);

  void Charge(size_t bytes);       // throws LimitReached
  void Step(uint64_t steps = 1) {  // throws LimitReached
    steps_ += steps;
    if (steps_ > limits_.steps) OutOfSteps();
  }
  const JinjaLimits& limits() const { return limits_; }

 private:
  [[noreturn]] void OutOfSteps() const;

  JinjaLimits limits_;
  size_t bytes_ = 0;
  uint64_t steps_ = 0;
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Loop> loops_;
  std::deque<Callable> callables_;
};

// The functions below throw LimitReached for values nested too deeply.
bool Truth(const Value&);
bool Equal(const Value&, const Value&, size_t depth = 0);
// Negative, 0 or positive. Throws TypeMismatch for values that Python does not order.
int Compare(const Value&, const Value&, size_t depth = 0);
struct TypeMismatch {
  std::string text;
};
bool Hashable(const Value&);
Text Print(const Value&);  // str()
std::string Repr(const Value&, size_t depth = 0);
std::string ReprText(std::string_view);  // 'it''s' as Python quotes it
std::string PrintFloat(double);
std::string UndefinedText(const Value&);  // "'x' is undefined"
std::string_view TypeName(const Value&);  // Python's: "str", "dict"
std::string ObjectTypeName(Kind);         // "dict object"
// json.dumps; indent < 0: one line.
struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::string indent;
  bool has_indent = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string ToJson(const Value&, const JsonStyle&);  // throws TypeMismatch

constexpr size_t kMaxValueDepth = 200;

}  // namespace larder::model::jinja_language
