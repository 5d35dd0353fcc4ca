// CallMachine: reads one block of calls, byte by byte, behind its opening marker; there is one kind
// for each way of writing calls. ToolTable: names and types from the request's tools. Owned by one
// AnswerParser.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "serving/answer/json_scanner.h"

namespace larder::serving::inline answer {

class ToolTable {
 public:
  explicit ToolTable(const nlohmann::ordered_json& tools);

  bool empty() const { return schemas_.empty(); }
  bool Has(std::string_view name) const { return schemas_.contains(name); }
  bool AnyBegins(std::string_view with) const {  // whether the name of a tool begins so
    const auto first = schemas_.lower_bound(with);
    return first != schemas_.end() && first->first.starts_with(with);
  }

  // The JSON text of a parameter's value that was written without a type: of a type that its schema
  // allows; if it is none of these, a string.
  std::string ToJson(std::string_view tool, std::string_view parameter,
                     std::string_view text) const;
  // Whether the parameter's schema allows strings only; then it can be streamed.
  bool IsString(std::string_view tool, std::string_view parameter) const;

 private:
  using Schema = nlohmann::ordered_json;
  unsigned Types(std::string_view tool, std::string_view parameter) const;
  std::map<std::string, Schema, std::less<>> schemas_;  // schemas of the parameters, by function
                                                        // name
};

// Types that a schema allows, a bit each. 0: it does not say, or finding out takes more than a
// millisecond (the I/O thread asks for each parameter that a model writes).
namespace json_type {
constexpr unsigned kString = 1, kNumber = 2, kInteger = 4, kBoolean = 8, kObject = 16, kArray = 32,
                   kNull = 64;
}
unsigned SchemaTypes(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

// Where calls go. Arguments are pieces of JSON text. Calls do not overlap.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // id: as the model wrote it, or empty
  virtual void Begin(std::string_view name, std::string_view id) = 0;
  virtual void Arguments(std::string_view json) = 0;
  virtual void End() = 0;
};

class CallMachine {
 public:
  virtual ~CallMachine() = default;
  virtual Step Next(char c) = 0;
  // The open call will not be completed: passes on what was held back of its arguments.
  virtual void Flush() {}
};

// JSON: an object with a name and arguments, a list of such objects, or {"tool_call": {...}}.
// whole_message: only these keys may occur, and the name must be a tool's; otherwise it is a JSON
// answer, not a call.
std::unique_ptr<CallMachine> MakeJsonCalls(CallSink&, const ToolTable&, bool whole_message);
// The keys that may stand in a message that is a call.
std::span<const std::string_view> MessageKeys();

// A head that ends before the first {, then the arguments' object. How the head holds the name:
enum class NamedForm : uint8_t {
  kMistral,        // name[ARGS], name[CALL_ID]id[ARGS]; or [ or {: as MakeJsonCalls
  kDeepSeek,       // function<sep>name\n```json\n, name<sep>
  kKimi,           // functions.name:0<|tool_call_argument_begin|>
  kFunctionary31,  // name>
  kFunctionary32,  // name\n
  kMiro,           // <tool_name>name</tool_name>\n<arguments>\n
};
std::unique_ptr<CallMachine> MakeNamedCall(CallSink&, const ToolTable&, NamedForm);

enum class XmlForm : uint8_t { kQwen, kSeed, kGlm, kDeepSeekV4 };
std::unique_ptr<CallMachine> MakeXmlCall(CallSink&, const ToolTable&, XmlForm);

std::unique_ptr<CallMachine> MakeGemmaCall(CallSink&);  // call:name{key:value}

// [name(key=value), ...], name.call(key=value); or JSON, as MakeJsonCalls. Values are Python's
// literals.
std::unique_ptr<CallMachine> MakePythonCalls(CallSink&, const ToolTable&);

// The value of a text that is one Python literal (or JSON's true, false, null); discarded if it is
// not.
nlohmann::ordered_json ParsePythonLiteral(std::string_view text);

// Passes the bytes of the arguments' JSON value on.
class ArgumentsPipe {
 public:
  explicit ArgumentsPipe(CallSink* sink) : sink_(sink) {}
  // Takes the byte; `kept` instead of the sink, if given (the name is not known yet).
  Step Next(char c, std::string* kept = nullptr);

 private:
  CallSink* sink_;
  JsonScanner scanner_;
};

}  // namespace larder::serving::answer
