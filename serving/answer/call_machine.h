// CallMachine: reads one block of calls, byte by byte, behind its opening marker; there is one kind
// for each way of writing calls. ToolTable: names and types from the request's tools. Owned by one
// AnswerParser.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
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
  virtual Verdict Next(char c) = 0;
  // The open call will not be completed: passes on what was held back of its arguments.
  virtual void Flush() {}
};

// JSON: an object with a name and arguments, a list of such objects, or {"tool_call": {...}}.
std::unique_ptr<CallMachine> MakeJsonCalls(CallSink&, const ToolTable&);
// The same without a marker, as a whole message: only MessageKeys may occur, and the name must be a
// tool's; otherwise it is a JSON answer, not a call.
std::unique_ptr<CallMachine> MakeJsonMessage(CallSink&, const ToolTable&);
// The keys that may stand in a message that is a call.
std::span<const std::string_view> MessageKeys();

// What stands before a call's arguments says this.
struct CallName {
  std::string_view name;
  std::string_view id;  // as the model wrote it, or empty
};
// An opening with the name, which ends before the first {, then the arguments' object.
struct NamedForm {
  // What a whole opening says; nothing if it is not one.
  std::optional<CallName> (*read)(std::string_view opening) = nullptr;
  bool or_json = false;  // calls may be without an opening, as MakeJsonCalls reads them
  // Not 0: the call's marker may also be text. So an opening is a name other than "all", this
  // character and white space; anything else is text.
  char name_end = 0;
};
std::unique_ptr<CallMachine> MakeNamedCall(CallSink&, const ToolTable&, const NamedForm&);
// The text between two others in `text`; nothing if one of them is missing.
std::optional<std::string_view> TextBetween(std::string_view text, std::string_view from,
                                            std::string_view to);

// Tags: the function's name, then a key and a value for each parameter.
struct XmlForm {
  std::string_view name_open, name_end;  // both empty: the name ends with its line, or where a tag
                                         // begins
  std::string_view key_open, key_end;
  std::string_view value_open;  // white space may stand before it
  std::string_view value_end;
  std::string_view call_end;
  bool lines = false;  // the value stands on lines of its own: a newline at each end is no part of
                       // it
  bool typed = false;  // string="true"> or string="false"> stands between key and value
};
std::unique_ptr<CallMachine> MakeXmlCall(CallSink&, const ToolTable&, const XmlForm&);

// [name(key=value), ...], name.call(key=value); or JSON, as MakeJsonCalls. Values are Python's
// literals.
std::unique_ptr<CallMachine> MakePythonCalls(CallSink&, const ToolTable&);

// The same calls on lines of their own, up to `end`.
std::unique_ptr<CallMachine> MakePythonLines(CallSink&, const ToolTable&, std::string_view end);

// Whether they can be read as the name of a function or of an argument.
bool IsPythonName(std::string_view name);

// The value of a text that is one Python literal (or JSON's true, false, null); discarded if it is
// not.
nlohmann::ordered_json ParsePythonLiteral(std::string_view text);

// Passes the bytes of the arguments' JSON value on.
class ArgumentsPipe {
 public:
  explicit ArgumentsPipe(CallSink* sink) : sink_(sink) {}
  // Takes the byte; `kept` instead of the sink, if given (the name is not known yet).
  Verdict Next(char c, std::string* kept = nullptr);

 private:
  CallSink* sink_;
  JsonScanner scanner_;
};

}  // namespace larder::serving::answer
