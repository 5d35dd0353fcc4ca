// Rendering: one run of a parsed template, on one thread. It owns all values that the run makes;
// filters, tests and methods get it as their first argument.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/jinja_language/ast.h"

namespace larder::model::inline jinja_language {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<const Text*, Value>> variables;

  void Set(const Text* name, const Value& value);
};

class Rendering {
 public:
  // `name`: of the template, for messages.
  Rendering(const ParsedTemplate& parsed, const JinjaLimits& limits, std::string_view name,
            int64_t now_s);

  void SetVariable(std::string_view name, const Value& value);
  Text Run();

  // ---- For filters, tests, functions and methods

  Heap& heap() { return heap_; }
  const Builtins& builtins() const { return *parsed_.builtins; }
  int64_t now_s() const { return now_s_; }
  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    FailText(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void FailText(std::string_view text) const;
  // Errors that leave the functions of value.h as LimitReached and TypeMismatch become messages
  // with a line.
  Value Call(const Value& callee, CallArgs& args);
  Value ApplyFilter(const Value& name, const Value& value, CallArgs& args);
  bool ApplyTest(const Value& name, const Value& value, CallArgs& args);
  Value Attribute(const Value& object, const Text* name);
  Value Item(const Value& object, const Value& key);
  Value Add(const Value& a, const Value& b);
  bool Contains(const Value& container, const Value& value);
  int Order(const Value& a, const Value& b);
  // What Python iterates over: elements, keys, characters; nothing for undefined.
  std::vector<Value> Items(const Value& value);
  size_t Length(const Value& value);
  void NeedDefined(const Value& value) const;  // Fails with "... is undefined"
  int64_t NeedInt(const Value& value, std::string_view what) const;
  const Text& NeedText(const Value& value, std::string_view what) const;
  Text ToText(const Value& value) { return Print(value); }
  Value Bytes(std::string text, bool trusted) { return heap_.String(std::move(text), trusted); }
  void CheckSize(size_t count, size_t each);  // call it before something of that size is made

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  class Depth;
  class Capture;

  Value Eval(const Node& node);
  Value EvalName(const Node& node);
  Value EvalLiteral(const Node& node);
  Value EvalSlice(const Node& node);
  Value EvalCall(const Node& node);
  Value EvalFilter(const Node& node);
  Value EvalTest(const Node& node);
  Value EvalCompare(const Node& node);
  bool CompareOnce(CompareOp op, const Value& a, const Value& b);
  Value EvalArithmetic(const Node& node);
  Value EvalConcat(const Node& node);
  Value IntArithmetic(Op op, int64_t a, int64_t b);
  Value FloatArithmetic(Op op, double a, double b);
  Value Repeat(const Value& value, int64_t times);
  void Arguments(const Node& node, CallArgs& args);

  Flow Exec(const std::vector<Node*>& body);
  Flow ExecOne(const Node& node);
  Flow ExecIf(const Node& node);
  Flow ExecFor(const Node& node);
  void ExecSetBlock(const Node& node);
  void ExecCallBlock(const Node& node);
  void ExecFilterBlock(const Node& node);
  Flow ExecWith(const Node& node);
  Flow ExecInScope(const std::vector<Node*>& body);
  void Assign(const Node& target, const Value& value);
  void Emit(const Value& value);
  void Emitted();
  Value CallMacro(const Callable& macro, CallArgs& args);
  Value MacroValue(const Node& node);
  Scope* NewScope(Scope* parent);

  const ParsedTemplate& parsed_;
  std::string_view name_;
  int64_t now_s_;
  Heap heap_;
  std::deque<Scope> scopes_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  uint32_t line_ = 1;
  size_t depth_ = 0;
  Value block_value_;  // the text of a filter or set block, the input of its innermost filter
  const Text* loop_name_;
};

// printf-style ("%s" % x, the filter format) and str.format.
Value FormatPercent(Rendering&, const Text& format, const Value& args);
Value FormatBraces(Rendering&, const Text& format, CallArgs& args);
// The elements of an index with step, as Python's slices; ends that are none are open.
std::vector<size_t> SliceIndices(Rendering&, size_t count, const Value& begin, const Value& end,
                                 const Value& step);
Value EscapeHtml(Rendering&, const Value& value);

}  // namespace larder::model::jinja_language
