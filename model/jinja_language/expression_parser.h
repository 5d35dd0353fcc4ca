// ExpressionParser: the half of the parser that reads expressions; parser.cc, which alone includes
// it, adds the statements.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja_language/ast.h"
#include "model/jinja_language/lexer.h"

namespace larder::model::inline jinja_language {

// The limit on expressions within expressions and blocks within blocks, so that no template
// exhausts the stack (a level takes a dozen calls here, one or two when rendered). A chain of
// operators makes a deep tree, too, but is parsed in a loop.
inline constexpr size_t kMaxNesting = 100;
inline constexpr uint32_t kMaxNodeDepth = 400;

class ExpressionParser {
 protected:
  ExpressionParser(std::string_view source, ParsedTemplate& out)
      : out_(out), tokens_(Lex(source)) {}

  struct Uses {
    bool varargs = false, kwargs = false, caller = false;
  };

  class Nested {
   public:
    explicit Nested(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting)
        parser_.Fail("expressions or blocks are nested too deeply");
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // ---- Tokens

  const Token& Current() const { return tokens_[at_]; }
  const Token& Ahead(size_t by = 1) const {
    return tokens_[std::min(at_ + by, tokens_.size() - 1)];
  }
  void Next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool IsOperator(std::string_view text) const {
    return Current().kind == TokenKind::kOperator && Current().text == text;
  }
  bool IsName(std::string_view text) const {
    return Current().kind == TokenKind::kName && Current().text == text;
  }
  bool TakeOperator(std::string_view text) {
    if (!IsOperator(text)) return false;
    Next();
    return true;
  }
  bool TakeName(std::string_view text) {
    if (!IsName(text)) return false;
    Next();
    return true;
  }
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kVariableEnd:
        return "'}}'";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kVariableBegin:
        return "'{{'";
      case TokenKind::kData:
        return "text";
      default:
        return "'" + token.text.substr(0, 40) + "'";
    }
  }
  [[noreturn]] void Fail(std::string text) const {
    throw SyntaxError{Current().line, std::move(text)};
  }
  [[noreturn]] void FailAt(std::string_view expected) const {
    Fail("found " + Describe(Current()) + ", expected " + std::string(expected));
  }
  void ExpectOperator(std::string_view text) {
    if (!TakeOperator(text)) FailAt("'" + std::string(text) + "'");
  }
  void ExpectName(std::string_view text) {
    if (!TakeName(text)) FailAt("'" + std::string(text) + "'");
  }
  void ExpectBlockEnd() {
    if (Current().kind != TokenKind::kBlockEnd) FailAt("'%}'");
    Next();
  }

  // ---- Nodes

  Node* New(Op op) {
    Node& node = out_.nodes.emplace_back();
    node.op = op;
    node.line = Current().line;
    return &node;
  }
  Node* Deepen(Node* node, const Node* child) const {
    if (child != nullptr && child->depth >= node->depth) node->depth = child->depth + 1;
    if (node->depth > kMaxNodeDepth) Fail("an expression or block is nested too deeply");
    return node;
  }
  Node* Sealed(Node* node) {
    for (const Node* child : {node->a, node->b, node->c}) Deepen(node, child);
    for (const Node* child : node->items) Deepen(node, child);
    for (const auto& [name, child] : node->named) Deepen(node, child);
    for (const Node* child : node->body) Deepen(node, child);
    for (const Node* child : node->otherwise) Deepen(node, child);
    for (const auto& [test, body] : node->chain) {
      Deepen(node, test);
      for (const Node* child : body) Deepen(node, child);
    }
    return node;
  }
  Node* Unary(Op op, Node* a) {
    Node* node = New(op);
    node->a = a;
    return Sealed(node);
  }
  Node* Binary(Op op, Node* a, Node* b) {
    Node* node = New(op);
    node->a = a;
    node->b = b;
    return Sealed(node);
  }
  Node* Constant(Value value) {
    Node* node = New(Op::kConst);
    node->value = value;
    return node;
  }
  const Text* NewText(std::string text) { return &out_.texts.emplace_back(std::move(text), true); }
  const Text* Name(const std::string& name) {
    const Text*& text = out_.names[name];
    if (text == nullptr) text = NewText(name);
    return text;
  }
  const Text* TakeAnyName() {
    if (Current().kind != TokenKind::kName) FailAt("a name");
    const Text* name = Name(Current().text);
    Next();
    return name;
  }
  Node* NameNode() {
    Node* node = New(Op::kName);
    const std::string& name = Current().text;
    for (Uses* uses : uses_) {
      uses->varargs |= name == "varargs";
      uses->kwargs |= name == "kwargs";
      uses->caller |= name == "caller";
    }
    node->name = TakeAnyName();
    return node;
  }

  // ---- Expressions, from what binds least to what binds most

  Node* TupleOrExpression(bool condition) {
    const auto one = [&] { return condition ? Expression() : Or(); };
    Node* first = one();
    if (!IsOperator(",")) return first;
    Node* tuple = New(Op::kTuple);
    tuple->items.push_back(first);
    while (TakeOperator(",")) {
      if (Current().kind == TokenKind::kBlockEnd || Current().kind == TokenKind::kVariableEnd ||
          IsOperator(")") || IsName("recursive"))
        break;
      tuple->items.push_back(one());
    }
    return Sealed(tuple);
  }

  Node* Expression() {
    const Nested nested(*this);
    Node* value = Or();
    while (TakeName("if")) {
      Node* test = Or();
      Node* otherwise = TakeName("else") ? Expression() : nullptr;
      Node* node = New(Op::kCondition);
      node->a = test;
      node->b = value;
      node->c = otherwise;
      value = Sealed(node);
    }
    return value;
  }

  Node* Or() {
    Node* left = And();
    while (TakeName("or")) left = Binary(Op::kOr, left, And());
    return left;
  }
  Node* And() {
    Node* left = Not();
    while (TakeName("and")) left = Binary(Op::kAnd, left, Not());
    return left;
  }
  Node* Not() {
    if (!TakeName("not")) return Comparison();
    const Nested nested(*this);
    return Unary(Op::kNot, Not());
  }

  bool TakeCompare(CompareOp* op) {
    constexpr std::pair<const char*, CompareOp> kOperators[] = {
        {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
        {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
        {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
    for (const auto& [text, known] : kOperators) {
      if (TakeOperator(text)) {
        *op = known;
        return true;
      }
    }
    if (TakeName("in")) {
      *op = CompareOp::kIn;
      return true;
    }
    if (IsName("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
      Next();
      Next();
      *op = CompareOp::kNotIn;
      return true;
    }
    return false;
  }

  Node* Comparison() {
    Node* first = Sum();
    CompareOp op{};
    if (!TakeCompare(&op)) return first;
    Node* node = New(Op::kCompare);
    node->items = {first, Sum()};
    node->compares = {op};
    while (TakeCompare(&op)) {
      node->items.push_back(Sum());
      node->compares.push_back(op);
    }
    return Sealed(node);
  }

  Node* Sum() {
    Node* left = Concat();
    while (true) {
      if (TakeOperator("+")) {
        left = Binary(Op::kAdd, left, Concat());
      } else if (TakeOperator("-")) {
        left = Binary(Op::kSubtract, left, Concat());
      } else {
        return left;
      }
    }
  }

  Node* Concat() {
    Node* first = Product();
    if (!IsOperator("~")) return first;
    Node* node = New(Op::kConcat);
    node->items.push_back(first);
    while (TakeOperator("~")) node->items.push_back(Product());
    return Sealed(node);
  }

  Node* Product() {
    Node* left = Power();
    while (true) {
      if (TakeOperator("*")) {
        left = Binary(Op::kMultiply, left, Power());
      } else if (TakeOperator("/")) {
        left = Binary(Op::kDivide, left, Power());
      } else if (TakeOperator("//")) {
        left = Binary(Op::kFloorDivide, left, Power());
      } else if (TakeOperator("%")) {
        left = Binary(Op::kModulo, left, Power());
      } else {
        return left;
      }
    }
  }

  Node* Power() {
    Node* left = Signed(true);
    while (TakeOperator("**")) left = Binary(Op::kPower, left, Signed(true));
    return left;
  }

  Node* Signed(bool with_filters) {
    Node* node = nullptr;
    if (IsOperator("-") || IsOperator("+")) {
      const Nested nested(*this);
      const Op op = IsOperator("-") ? Op::kNegative : Op::kPositive;
      Next();
      node = Unary(op, Signed(false));
    } else {
      node = Primary();
    }
    node = Postfix(node);
    return with_filters ? FiltersAndTests(node) : node;
  }

  Node* Primary() {
    const Token token = Current();
    switch (token.kind) {
      case TokenKind::kName:
        if (token.text == "true" || token.text == "True")
          return Next(), Constant(Value::Bool(true));
        if (token.text == "false" || token.text == "False")
          return Next(), Constant(Value::Bool(false));
        if (token.text == "none" || token.text == "None") return Next(), Constant(Value::None());
        return NameNode();
      case TokenKind::kString: {
        std::string text;
        for (; Current().kind == TokenKind::kString; Next()) text += Current().text;
        return Constant(Value::String(NewText(std::move(text))));
      }
      case TokenKind::kInteger:
        return Integer();
      case TokenKind::kFloat:
        Next();
        return Constant(Value::Float(std::strtod(token.text.c_str(), nullptr)));
      default:
        break;
    }
    if (TakeOperator("(")) {
      const Nested nested(*this);
      if (TakeOperator(")")) return New(Op::kTuple);
      Node* node = TupleOrExpression(true);
      ExpectOperator(")");
      return node;
    }
    if (TakeOperator("[")) {
      Node* list = New(Op::kList);
      while (!IsOperator("]")) {
        if (!list->items.empty()) ExpectOperator(",");
        if (IsOperator("]")) break;
        list->items.push_back(Expression());
      }
      Next();
      return Sealed(list);
    }
    if (TakeOperator("{")) {
      Node* dict = New(Op::kDict);
      while (!IsOperator("}")) {
        if (!dict->items.empty()) ExpectOperator(",");
        if (IsOperator("}")) break;
        dict->items.push_back(Expression());
        ExpectOperator(":");
        dict->items.push_back(Expression());
      }
      Next();
      return Sealed(dict);
    }
    FailAt("an expression");
  }

  Node* Integer() {
    std::string text = Current().text;
    int base = 10;
    if (text.size() > 2 && text[0] == '0') {
      const char letter = static_cast<char>(text[1] | 32);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (base != 10) text.erase(0, 2);
    }
    int64_t number = 0;
    const auto end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number, base);
    if (error != std::errc() || stop != end)
      Fail("the number '" + Current().text.substr(0, 40) + "' is too large or wrong");
    Next();
    return Constant(Value::Int(number));
  }

  Node* Postfix(Node* node) {
    while (true) {
      if (TakeOperator(".")) {
        if (Current().kind == TokenKind::kInteger) {
          node = Binary(Op::kItem, node, Integer());
          continue;
        }
        Node* attribute = New(Op::kAttribute);
        attribute->a = node;
        attribute->name = TakeAnyName();
        node = Sealed(attribute);
      } else if (TakeOperator("[")) {
        node = Subscript(node);
      } else if (IsOperator("(")) {
        node = Call(node);
      } else {
        return node;
      }
    }
  }

  Node* Subscript(Node* object) {
    Node* node = New(Op::kItem);
    node->a = object;
    if (TakeOperator("]")) {  // as Jinja2 has it: the element of the empty tuple
      node->b = New(Op::kTuple);
      return Sealed(node);
    }
    Node* index = IsOperator(":") ? nullptr : Expression();
    if (IsOperator(":")) {
      node->op = Op::kSlice;
      node->items = {index, nullptr, nullptr};
      for (size_t i = 1; i < 3 && TakeOperator(":"); ++i) {
        if (!IsOperator(":") && !IsOperator("]")) node->items[i] = Expression();
      }
    } else if (IsOperator(",")) {
      Node* tuple = New(Op::kTuple);
      tuple->items.push_back(index);
      while (TakeOperator(",") && !IsOperator("]")) tuple->items.push_back(Expression());
      node->b = Sealed(tuple);
    } else {
      node->b = index;
    }
    ExpectOperator("]");
    return Sealed(node);
  }

  void Arguments(Node* node) {
    ExpectOperator("(");
    bool first = true;
    while (!IsOperator(")")) {
      if (!first) ExpectOperator(",");
      first = false;
      if (IsOperator(")")) break;
      if (TakeOperator("*")) {
        if (node->b != nullptr) Fail("a call has more than one *argument");
        node->b = Expression();
      } else if (TakeOperator("**")) {
        if (node->c != nullptr) Fail("a call has more than one **argument");
        node->c = Expression();
      } else if (Current().kind == TokenKind::kName && Ahead().kind == TokenKind::kOperator &&
                 Ahead().text == "=") {
        const Text* name = TakeAnyName();
        Next();
        node->named.emplace_back(name, Expression());
      } else {
        if (!node->named.empty() || node->b != nullptr || node->c != nullptr)
          Fail("an argument without name follows one with a name");
        node->items.push_back(Expression());
      }
    }
    Next();
  }

  Node* Call(Node* callee) {
    Node* node = New(Op::kCall);
    node->a = callee;
    Arguments(node);
    return Sealed(node);
  }

  Node* FiltersAndTests(Node* node) {
    while (true) {
      if (IsOperator("|")) {
        node = Filters(node, false);
      } else if (IsName("is")) {
        node = Test(node);
      } else if (IsOperator("(")) {
        node = Call(node);
      } else {
        return node;
      }
    }
  }

  std::string DottedName() {
    std::string name = TakeAnyName()->bytes();
    while (TakeOperator(".")) name += "." + TakeAnyName()->bytes();
    return name;
  }

  // node|filter|filter...; `bare`: the first has no bar (filter blocks).
  Node* Filters(Node* node, bool bare) {
    while (bare || TakeOperator("|")) {
      bare = false;
      Node* filter = New(Op::kFilter);
      filter->a = node;
      filter->name = Name(DottedName());
      filter->function = out_.builtins->filter(filter->name->view());
      if (IsOperator("(")) Arguments(filter);
      node = Sealed(filter);
    }
    return node;
  }

  Node* Test(Node* operand) {
    Next();  // is
    const bool negated = TakeName("not");
    Node* test = New(Op::kTest);
    test->a = operand;
    test->name = Name(DottedName());
    test->function = out_.builtins->test(test->name->view());
    const Token& token = Current();
    if (IsOperator("(")) {
      Arguments(test);
    } else if (token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
               token.kind == TokenKind::kFloat || IsOperator("[") || IsOperator("{") ||
               (token.kind == TokenKind::kName && !IsName("else") && !IsName("or") &&
                !IsName("and"))) {
      if (IsName("is")) Fail("tests cannot be chained with 'is'");
      test->items.push_back(Postfix(Primary()));
    }
    Node* node = Sealed(test);
    return negated ? Unary(Op::kNot, node) : node;
  }

  ParsedTemplate& out_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  size_t nesting_ = 0;
  size_t loops_ = 0;
  std::vector<Uses*> uses_;
};

}  // namespace larder::model::jinja_language
