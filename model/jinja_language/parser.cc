#include <utility>

#include "model/jinja_language/expression_parser.h"

namespace larder::model::inline jinja_language {
namespace {

class Parser : public ExpressionParser {
 public:
  Parser(std::string_view source, ParsedTemplate& out) : ExpressionParser(source, out) {}

  void Run() {
    out_.body = Block({});
    if (Current().kind != TokenKind::kEnd) Fail("unexpected end of the template");
  }

 private:
  // ---- Blocks

  // Statements up to a tag whose name is one of `ends`; the tag's name is the current token then.
  std::vector<Node*> Block(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    std::vector<Node*> body;
    while (true) {
      switch (Current().kind) {
        case TokenKind::kEnd:
          if (ends.size() > 0)
            Fail("the template ends inside a block, expected '" + std::string(*(ends.end() - 1)) +
                 "'");
          return body;
        case TokenKind::kData: {
          Node* node = New(Op::kData);
          node->value = Value::String(NewText(Current().text));
          body.push_back(node);
          Next();
          break;
        }
        case TokenKind::kVariableBegin: {
          Next();
          Node* print = New(Op::kPrint);
          print->a = TupleOrExpression(true);
          if (Current().kind != TokenKind::kVariableEnd) FailAt("'}}'");
          Next();
          body.push_back(Sealed(print));
          break;
        }
        default: {
          Next();  // {%
          if (Current().kind != TokenKind::kName) FailAt("the name of a statement");
          for (const std::string_view end : ends) {
            if (Current().text == end) return body;
          }
          if (Node* node = Statement()) body.push_back(Sealed(node));
        }
      }
    }
  }

  std::vector<Node*> BodyUntil(std::string_view end) {
    ExpectBlockEnd();
    std::vector<Node*> body = Block({end});
    Next();
    ExpectBlockEnd();
    return body;
  }

  Node* Statement() {
    const std::string name = Current().text;
    Node* node = New(Op::kIf);
    Next();
    if (name == "if") return If(node);
    if (name == "for") return For(node);
    if (name == "set") return Set(node);
    if (name == "macro") return Macro(node);
    if (name == "call") return CallBlock(node);
    if (name == "filter") {
      node->op = Op::kFilterBlock;
      node->a = Filters(nullptr, true);
      node->body = BodyUntil("endfilter");
      return node;
    }
    if (name == "with") return With(node);
    if (name == "generation") {
      node->op = Op::kScope;
      node->body = BodyUntil("endgeneration");
      return node;
    }
    if (name == "break" || name == "continue") {
      node->op = name == "break" ? Op::kBreak : Op::kContinue;
      if (loops_ == 0) Fail("'" + name + "' outside of a loop");
      ExpectBlockEnd();
      return node;
    }
    --at_;
    Fail("unknown or unexpected tag '" + name.substr(0, 40) + "'");
  }

  Node* If(Node* node) {
    node->op = Op::kIf;
    node->a = TupleOrExpression(false);
    ExpectBlockEnd();
    node->body = Block({"elif", "else", "endif"});
    while (IsName("elif")) {
      Next();
      Node* test = TupleOrExpression(false);
      ExpectBlockEnd();
      node->chain.emplace_back(test, Block({"elif", "else", "endif"}));
    }
    if (TakeName("else")) {
      ExpectBlockEnd();
      node->otherwise = Block({"endif"});
    }
    ExpectName("endif");
    ExpectBlockEnd();
    return node;
  }

  Node* For(Node* node) {
    node->op = Op::kFor;
    node->target = Target(false);
    ExpectName("in");
    node->a = TupleOrExpression(false);
    if (TakeName("if")) node->b = Expression();
    if (IsName("recursive")) Fail("recursive loops are not supported");
    ExpectBlockEnd();
    ++loops_;
    node->body = Block({"else", "endfor"});
    --loops_;
    if (TakeName("else")) {
      ExpectBlockEnd();
      node->otherwise = Block({"endfor"});
    }
    ExpectName("endfor");
    ExpectBlockEnd();
    return node;
  }

  Node* Set(Node* node) {
    node->target = Target(true);
    if (TakeOperator("=")) {
      node->op = Op::kSet;
      node->a = TupleOrExpression(true);
      ExpectBlockEnd();
      return node;
    }
    node->op = Op::kSetBlock;
    if (IsOperator("|")) node->a = Filters(nullptr, false);
    node->body = BodyUntil("endset");
    return node;
  }

  // A name, names with commas, in brackets or not; namespace.attribute only for set.
  Node* Target(bool attributes) {
    Node* first = OneTarget(attributes);
    if (!IsOperator(",")) return first;
    Node* tuple = New(Op::kTuple);
    tuple->items.push_back(first);
    while (TakeOperator(",")) {
      if (Current().kind != TokenKind::kName && !IsOperator("(")) break;
      if (IsName("in")) break;
      tuple->items.push_back(OneTarget(attributes));
    }
    return tuple;
  }

  Node* OneTarget(bool attributes) {
    if (TakeOperator("(")) {
      const Nested nested(*this);
      Node* target = Target(attributes);
      ExpectOperator(")");
      return target;
    }
    for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
      if (IsName(word)) Fail("cannot assign to '" + std::string(word) + "'");
    }
    Node* name = NameNode();
    if (!attributes || !TakeOperator(".")) return name;
    Node* attribute = New(Op::kAttribute);
    attribute->a = name;
    attribute->name = TakeAnyName();
    return attribute;
  }

  void Parameters(Node* node) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!node->named.empty()) ExpectOperator(",");
      if (IsOperator(")")) break;
      const Text* name = TakeAnyName();
      Node* otherwise = TakeOperator("=") ? Expression() : nullptr;
      if (otherwise == nullptr && !node->named.empty() && node->named.back().second != nullptr)
        Fail("a parameter without default follows one with default");
      node->named.emplace_back(name, otherwise);
    }
    Next();
  }

  void MacroBody(Node* node, std::string_view end) {
    Uses uses;
    uses_.push_back(&uses);
    const size_t loops = std::exchange(loops_, 0);
    node->body = BodyUntil(end);
    loops_ = loops;
    uses_.pop_back();
    node->uses_varargs = uses.varargs;
    node->uses_kwargs = uses.kwargs;
    node->uses_caller = uses.caller;
  }

  Node* Macro(Node* node) {
    node->op = Op::kMacro;
    node->name = TakeAnyName();
    Parameters(node);
    MacroBody(node, "endmacro");
    return node;
  }

  Node* CallBlock(Node* node) {
    node->op = Op::kCallBlock;
    node->name = Name("caller");
    if (IsOperator("(")) Parameters(node);
    node->a = Expression();
    if (node->a->op != Op::kCall) Fail("expected a call after 'call'");
    MacroBody(node, "endcall");
    return node;
  }

  Node* With(Node* node) {
    node->op = Op::kWith;
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!node->items.empty()) ExpectOperator(",");
      node->items.push_back(Target(false));
      ExpectOperator("=");
      node->items.push_back(Expression());
    }
    node->body = BodyUntil("endwith");
    return node;
  }
};

}  // namespace

void ParseTemplate(std::string_view source, const Builtins& builtins, ParsedTemplate& out) {
  out.builtins = &builtins;
  Parser(source, out).Run();
}

}  // namespace larder::model::jinja_language
