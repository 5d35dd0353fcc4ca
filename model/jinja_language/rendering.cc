#include "model/jinja_language/rendering.h"

namespace larder::model::inline jinja_language {

class Rendering::Depth {
 public:
  explicit Depth(Rendering& rendering) : rendering_(rendering) {
    if (++rendering_.depth_ > rendering_.heap_.limits().depth) {
      --rendering_.depth_;
      rendering_.FailText("expressions and calls are nested too deeply");
    }
  }
  ~Depth() { --rendering_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Rendering& rendering_;
};

// What is printed while it lives goes to a text of its own.
class Rendering::Capture {
 public:
  explicit Capture(Rendering& rendering) : rendering_(rendering), outer_(rendering.out_) {
    rendering_.out_ = &text;
  }
  ~Capture() { rendering_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Text text;

 private:
  Rendering& rendering_;
  Text* outer_;
};

void Scope::Set(const Text* name, const Value& value) {
  for (auto& [known, old] : variables) {
    if (known == name) {
      old = value;
      return;
    }
  }
  variables.emplace_back(name, value);
}

Rendering::Rendering(const ParsedTemplate& parsed, const JinjaLimits& limits, std::string_view name,
                     int64_t now_s)
    : parsed_(parsed),
      name_(name),
      now_s_(now_s),
      heap_(limits),
      loop_name_(parsed.FindName("loop")) {
  scope_ = NewScope(nullptr);
}

void Rendering::SetVariable(std::string_view name, const Value& value) {
  if (const Text* known = parsed_.FindName(name)) scope_->Set(known, value);
}

void Rendering::FailText(std::string_view text) const {
  throw Error("{}: line {}: {}", name_, line_, text);
}

Text Rendering::Run() {
  Text out;
  out_ = &out;
  scope_ = NewScope(scope_);  // so that what the template sets does not hide its variables from
                              // macros
  try {
    Exec(parsed_.body);
  } catch (const LimitReached& limit) {
    FailText(limit.text);
  } catch (const TypeMismatch& mismatch) {
    FailText(mismatch.text);
  }
  return out;
}

Scope* Rendering::NewScope(Scope* parent) {
  heap_.Charge(sizeof(Scope));
  Scope& scope = scopes_.emplace_back();
  scope.parent = parent;
  return &scope;
}

void Rendering::NeedDefined(const Value& value) const {
  if (value.undefined()) FailText(UndefinedText(value));
}

int64_t Rendering::NeedInt(const Value& value, std::string_view what) const {
  NeedDefined(value);
  if (!value.integral()) Fail("{} is of type {}, expected int", what, TypeName(value));
  return value.AsInt();
}

const Text& Rendering::NeedText(const Value& value, std::string_view what) const {
  NeedDefined(value);
  if (!value.string()) Fail("{} is of type {}, expected str", what, TypeName(value));
  return *value.text;
}

void Rendering::CheckSize(size_t count, size_t each) {
  if (each > 0 && count > heap_.limits().memory_bytes / each)
    throw LimitReached{"a value becomes too large"};
}

// ---- Statements

Rendering::Flow Rendering::Exec(const std::vector<Node*>& body) {
  for (const Node* node : body) {
    const Flow flow = ExecOne(*node);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Rendering::Flow Rendering::ExecOne(const Node& node) {
  const Depth depth(*this);
  heap_.Step();
  line_ = node.line;
  switch (node.op) {
    case Op::kData:
      out_->Append(*node.value.text);
      Emitted();
      return Flow::kNormal;
    case Op::kPrint:
      Emit(Eval(*node.a));
      return Flow::kNormal;
    case Op::kIf:
      return ExecIf(node);
    case Op::kFor:
      return ExecFor(node);
    case Op::kSet:
      Assign(*node.target, Eval(*node.a));
      return Flow::kNormal;
    case Op::kSetBlock:
      ExecSetBlock(node);
      return Flow::kNormal;
    case Op::kMacro:
      scope_->Set(node.name, MacroValue(node));
      return Flow::kNormal;
    case Op::kCallBlock:
      ExecCallBlock(node);
      return Flow::kNormal;
    case Op::kFilterBlock:
      ExecFilterBlock(node);
      return Flow::kNormal;
    case Op::kWith:
      return ExecWith(node);
    case Op::kScope:
      return ExecInScope(node.body);
    case Op::kBreak:
      return Flow::kBreak;
    case Op::kContinue:
      return Flow::kContinue;
    default:
      FailText("no such statement");
  }
}

Rendering::Flow Rendering::ExecIf(const Node& node) {
  if (Truth(Eval(*node.a))) return Exec(node.body);
  for (const auto& [test, body] : node.chain) {
    heap_.Step();
    if (Truth(Eval(*test))) return Exec(body);
  }
  return Exec(node.otherwise);
}

Rendering::Flow Rendering::ExecInScope(const std::vector<Node*>& body) {
  Scope* const outer = scope_;
  scope_ = NewScope(outer);
  const Flow flow = Exec(body);
  scope_ = outer;
  return flow;
}

Rendering::Flow Rendering::ExecFor(const Node& node) {
  std::vector<Value> items = Items(Eval(*node.a));
  Scope* const outer = scope_;
  Scope* const scope = scope_ = NewScope(outer);
  if (node.b != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      heap_.Step();
      scope->variables.clear();
      Assign(*node.target, item);
      if (Truth(Eval(*node.b))) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    scope->variables.clear();
    const Flow flow = Exec(node.otherwise);
    scope_ = outer;
    return flow;
  }
  const Value loop = heap_.NewLoop({std::move(items)});
  for (size_t i = 0; i < loop.loop->items.size(); ++i) {
    heap_.Step();
    loop.loop->index = i;
    scope->variables.clear();
    if (loop_name_ != nullptr) scope->variables.emplace_back(loop_name_, loop);
    Assign(*node.target, loop.loop->items[i]);
    if (Exec(node.body) == Flow::kBreak) break;
  }
  scope_ = outer;
  return Flow::kNormal;
}

void Rendering::ExecSetBlock(const Node& node) {
  Capture capture(*this);
  ExecInScope(node.body);
  Value value = heap_.String(std::move(capture.text));
  if (node.a != nullptr) {
    const Value before = std::exchange(block_value_, value);
    value = Eval(*node.a);
    block_value_ = before;
  }
  Assign(*node.target, value);
}

void Rendering::ExecFilterBlock(const Node& node) {
  Value value;
  {
    Capture capture(*this);
    ExecInScope(node.body);
    value = heap_.String(std::move(capture.text));
  }
  const Value before = std::exchange(block_value_, value);
  value = Eval(*node.a);
  block_value_ = before;
  Emit(value);
}

Rendering::Flow Rendering::ExecWith(const Node& node) {
  std::vector<Value> values;
  for (size_t i = 1; i < node.items.size(); i += 2) values.push_back(Eval(*node.items[i]));
  Scope* const outer = scope_;
  scope_ = NewScope(outer);
  for (size_t i = 0; i < values.size(); ++i) Assign(*node.items[2 * i], values[i]);
  const Flow flow = Exec(node.body);
  scope_ = outer;
  return flow;
}

void Rendering::ExecCallBlock(const Node& node) {
  const Node& call = *node.a;
  const Value callee = Eval(*call.a);
  CallArgs args;
  Arguments(call, args);
  args.named.emplace_back("caller", MacroValue(node));
  Emit(Call(callee, args));
}

void Rendering::Assign(const Node& target, const Value& value) {
  switch (target.op) {
    case Op::kName:
      scope_->Set(target.name, value);
      return;
    case Op::kAttribute: {
      const Value space = Eval(*target.a);
      if (!space.Is(Kind::kNamespace)) FailText("cannot assign attribute on non-namespace object");
      heap_.Charge(2 * sizeof(Value));
      space.dict->Set(Value::String(target.name), value);
      return;
    }
    default: {
      NeedDefined(value);
      const std::vector<Value> parts = Items(value);
      if (parts.size() != target.items.size())
        Fail("{} values to unpack, expected {}", parts.size(), target.items.size());
      for (size_t i = 0; i < parts.size(); ++i) Assign(*target.items[i], parts[i]);
    }
  }
}

void Rendering::Emit(const Value& value) {
  if (value.string()) {
    out_->Append(*value.text);
  } else {
    out_->Append(Print(value));
  }
  Emitted();
}

void Rendering::Emitted() {
  if (out_->size() > heap_.limits().output_bytes)
    throw LimitReached{"the text becomes longer than " +
                       std::to_string(heap_.limits().output_bytes) + " bytes"};
}

// ---- Macros and calls

Value Rendering::MacroValue(const Node& node) {
  Callable macro;
  macro.name = node.name->view();
  macro.macro = &node;
  macro.scope = scope_;
  return heap_.NewCallable(macro);
}

void Rendering::Arguments(const Node& node, CallArgs& args) {
  for (const Node* item : node.items) args.positional.push_back(Eval(*item));
  if (node.b != nullptr) {
    for (const Value& item : Items(Eval(*node.b))) args.positional.push_back(item);
  }
  for (const auto& [name, value] : node.named) args.named.emplace_back(name->view(), Eval(*value));
  if (node.c != nullptr) {
    const Value named = Eval(*node.c);
    if (!named.mapping())
      Fail("the argument after ** is of type {}, expected dict", TypeName(named));
    for (const auto& [key, value] : named.dict->entries)
      args.named.emplace_back(NeedText(key, "a keyword").view(), value);
  }
}

Value Rendering::Call(const Value& callee, CallArgs& args) {
  NeedDefined(callee);
  heap_.Step();
  if (!callee.Is(Kind::kCallable)) Fail("'{}' object is not callable", TypeName(callee));
  if (callee.callable->macro != nullptr) return CallMacro(*callee.callable, args);
  return callee.callable->builtin(*this, callee.callable->self, args);
}

Value Rendering::CallMacro(const Callable& macro, CallArgs& args) {
  const Depth depth(*this);
  const Node& node = *macro.macro;
  const uint32_t line = line_;
  const auto take = [&](std::string_view name, Value* value) {
    for (auto it = args.named.begin(); it != args.named.end(); ++it) {
      if (it->first == name) {
        *value = it->second;
        args.named.erase(it);
        return true;
      }
    }
    return false;
  };
  Scope* const caller_scope = std::exchange(scope_, NewScope(macro.scope));
  Capture capture(*this);
  bool explicit_caller = false;
  for (size_t i = 0; i < node.named.size(); ++i) {
    const auto& [name, otherwise] = node.named[i];
    explicit_caller |= name->view() == "caller";
    Value value;
    if (i < args.positional.size()) {
      value = args.positional[i];
    } else if (!take(name->view(), &value)) {
      value = otherwise != nullptr ? Eval(*otherwise) : Value::Undefined(name);
    }
    scope_->Set(name, value);
  }
  if (node.uses_caller && !explicit_caller) {
    const Text* name = parsed_.FindName("caller");
    Value value = Value::Undefined(name);
    take("caller", &value);
    scope_->Set(name, value);
  }
  if (node.uses_kwargs) {
    const Value dict = heap_.NewDict();
    for (const auto& [name, value] : args.named)
      dict.dict->Set(Bytes(std::string(name), true), value);
    scope_->Set(parsed_.FindName("kwargs"), dict);
  } else if (!args.named.empty()) {
    Fail("macro '{}' takes no keyword argument '{}'", macro.name, args.named[0].first);
  }
  const size_t count = node.named.size();
  if (node.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    scope_->Set(parsed_.FindName("varargs"), heap_.NewList(std::move(rest), Kind::kTuple));
  } else if (args.positional.size() > count) {
    Fail("macro '{}' takes not more than {} argument(s)", macro.name, count);
  }
  Exec(node.body);
  scope_ = caller_scope;
  line_ = line;
  return heap_.String(std::move(capture.text));
}

// ---- Expressions

Value Rendering::Eval(const Node& node) {
  const Depth depth(*this);
  heap_.Step();
  line_ = node.line;
  switch (node.op) {
    case Op::kConst:
      return node.value;
    case Op::kName:
      return EvalName(node);
    case Op::kList:
    case Op::kTuple:
    case Op::kDict:
      return EvalLiteral(node);
    case Op::kAttribute: {
      const Value object = Eval(*node.a);
      return Attribute(object, node.name);
    }
    case Op::kItem: {
      const Value object = Eval(*node.a);
      return Item(object, Eval(*node.b));
    }
    case Op::kSlice:
      return EvalSlice(node);
    case Op::kCall:
      return EvalCall(node);
    case Op::kFilter:
      return EvalFilter(node);
    case Op::kTest:
      return EvalTest(node);
    case Op::kNot:
      return Value::Bool(!Truth(Eval(*node.a)));
    case Op::kAnd: {
      const Value left = Eval(*node.a);
      return Truth(left) ? Eval(*node.b) : left;
    }
    case Op::kOr: {
      const Value left = Eval(*node.a);
      return Truth(left) ? left : Eval(*node.b);
    }
    case Op::kCompare:
      return EvalCompare(node);
    case Op::kCondition:
      if (Truth(Eval(*node.a))) return Eval(*node.b);
      return node.c != nullptr ? Eval(*node.c) : Value();
    case Op::kConcat:
      return EvalConcat(node);
    default:
      return EvalArithmetic(node);
  }
}

Value Rendering::EvalName(const Node& node) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [name, value] : scope->variables) {
      if (name == node.name) return value;
    }
  }
  if (const Builtin function = builtins().global(node.name->view())) {
    Callable callable;
    callable.builtin = function;
    callable.name = node.name->view();
    return heap_.NewCallable(callable);
  }
  return Value::Undefined(node.name);
}

Value Rendering::EvalLiteral(const Node& node) {
  if (node.op != Op::kDict) {
    std::vector<Value> items;
    items.reserve(node.items.size());
    for (const Node* item : node.items) items.push_back(Eval(*item));
    return heap_.NewList(std::move(items), node.op == Op::kList ? Kind::kList : Kind::kTuple);
  }
  const Value dict = heap_.NewDict();
  for (size_t i = 0; i < node.items.size(); i += 2) {
    const Value key = Eval(*node.items[i]);
    if (!Hashable(key)) Fail("unhashable type: '{}'", TypeName(key));
    heap_.Charge(2 * sizeof(Value));
    dict.dict->Set(key, Eval(*node.items[i + 1]));
  }
  return dict;
}

Value Rendering::EvalCall(const Node& node) {
  const Value callee = Eval(*node.a);
  CallArgs args;
  Arguments(node, args);
  line_ = node.line;
  return Call(callee, args);
}

Value Rendering::EvalFilter(const Node& node) {
  if (node.function == nullptr) Fail("No filter named '{}'", node.name->view());
  const Value value = node.a == nullptr ? block_value_ : Eval(*node.a);
  CallArgs args;
  Arguments(node, args);
  line_ = node.line;
  return node.function(*this, value, args);
}

Value Rendering::EvalTest(const Node& node) {
  if (node.function == nullptr) Fail("No test named '{}'", node.name->view());
  const Value value = Eval(*node.a);
  CallArgs args;
  Arguments(node, args);
  return node.function(*this, value, args);
}

Value Rendering::ApplyFilter(const Value& name, const Value& value, CallArgs& args) {
  const Builtin filter = builtins().filter(NeedText(name, "the filter's name").view());
  if (filter == nullptr) Fail("No filter named '{}'", name.view());
  heap_.Step();
  return filter(*this, value, args);
}

bool Rendering::ApplyTest(const Value& name, const Value& value, CallArgs& args) {
  const Builtin test = builtins().test(NeedText(name, "the test's name").view());
  if (test == nullptr) Fail("No test named '{}'", name.view());
  heap_.Step();
  return Truth(test(*this, value, args));
}

Value Rendering::EvalCompare(const Node& node) {
  Value left = Eval(*node.items[0]);
  for (size_t i = 0; i < node.compares.size(); ++i) {
    const Value right = Eval(*node.items[i + 1]);
    if (!CompareOnce(node.compares[i], left, right)) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

bool Rendering::CompareOnce(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEqual:
      return Equal(a, b);
    case CompareOp::kNotEqual:
      return !Equal(a, b);
    case CompareOp::kLess:
      return Order(a, b) < 0;
    case CompareOp::kLessEqual:
      return Order(a, b) <= 0;
    case CompareOp::kGreater:
      return Order(a, b) > 0;
    case CompareOp::kGreaterEqual:
      return Order(a, b) >= 0;
    case CompareOp::kIn:
      return Contains(b, a);
    case CompareOp::kNotIn:
      return !Contains(b, a);
  }
  return false;
}

int Rendering::Order(const Value& a, const Value& b) {
  NeedDefined(a);
  NeedDefined(b);
  return Compare(a, b);
}

Value Rendering::EvalConcat(const Node& node) {
  Text text;
  for (const Node* item : node.items) {
    const Value value = Eval(*item);
    if (value.string()) {
      text.Append(*value.text);
    } else {
      text.Append(Print(value));
    }
    if (text.size() > heap_.limits().memory_bytes) throw LimitReached{"a string becomes too long"};
  }
  return heap_.String(std::move(text));
}

}  // namespace larder::model::jinja_language
