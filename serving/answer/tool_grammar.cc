#include "serving/answer/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/work.h"
#include "serving/answer/call_machine.h"
#include "serving/answer/format_entry.h"
#include "serving/answer/grammar_text.h"
#include "serving/grammar/gbnf.h"
#include "serving/grammar/schema_merge.h"

namespace larder::serving::inline answer {
namespace {

using Json = nlohmann::ordered_json;

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json WholeSchema(const Json& function) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || !parameters->is_object() || parameters->empty()) {
    return {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
  }
  Json schema = *parameters;
  if (!schema.contains("type")) schema["type"] = "object";
  return schema;
}

std::vector<Tool> ReadTools(const Json& tools, const ToolChoice& choice) {
  std::vector<Tool> read;
  if (tools.is_array()) {
    for (const Json& tool : tools) {
      if (!tool.is_object()) continue;
      const auto inner = tool.find("function");
      const Json& function = inner != tool.end() && inner->is_object() ? *inner : tool;
      const auto name = function.find("name");
      if (name == function.end() || !name->is_string()) continue;
      if (choice.kind == ToolChoice::Kind::kNamed && *name != choice.name) continue;
      read.push_back({name->get<std::string>(), WholeSchema(function)});
    }
  }
  if (!read.empty()) return read;
  if (choice.kind == ToolChoice::Kind::kNamed) {
    throw Error("tool_choice: no tool is named \"{}\"", choice.name);
  }
  throw Error("tools: expected at least one function with a name");
}

// As templates have it. No more: a model that would rather write something else than what has to
// follow would go on with empty lines.
constexpr std::string_view kBehindThought = R"("\n"? "\n"?)";

class Maker {
 public:
  explicit Maker(AnswerFormat format)
      : format_(EntryOf(format)),
        shape_(format_.shape),
        thought_(format_.thought),
        text_(format_.tag_token) {}

  ToolGrammar Make(const std::vector<Tool>& tools, const ToolChoice& choice,
                   const ToolGrammarOptions& options) {
    const bool is_auto = choice.kind == ToolChoice::Kind::kAuto;
    std::string calls = Calls(tools, options.parallel);
    ToolGrammar grammar;
    if (is_auto && shape_.marked) {
      grammar.triggers = {std::string(shape_.open.front())};
    } else {
      calls = fmt::format("{}{} {}", shape_.before, text_.Fixed(shape_.open.front()), calls);
      if (!options.schema.is_null())
        calls = fmt::format("({} | {})", calls, Answer(GbnfJson(options.schema)));
      if (is_auto) calls = CallOrText(calls);
      if (options.starts_in_reasoning) {
        calls = BehindThought(grammar, calls);
      } else if (options.may_think || is_auto) {
        calls = (is_auto ? "s " : "") + Thought() + calls;
      }
    }
    grammar.gbnf = "root ::= " + calls + "\n" + text_.rules();
    return grammar;
  }

  ToolGrammar MakeAnswer(const std::string& answer, const ToolGrammarOptions& options) {
    ToolGrammar grammar;
    std::string root = Answer(answer);
    if (thought_.messages) root = Thought("*") + root;
    if (options.starts_in_reasoning) {
      root = BehindThought(grammar, root);
    } else if (options.may_think && !thought_.messages) {
      root = Thought() + root;
    }
    grammar.gbnf = "root ::= " + root + "\n" + text_.rules();
    return grammar;
  }

 private:
  // Where no marker tells a call from text (MakeJsonCalls of a whole message): a call, or a text
  // that cannot be read as one, by the key that its JSON begins with. JSON may stand in a fence.
  std::string CallOrText(const std::string& call) {
    text_.Rule("rest", ".*");
    text_.Rule("s", "[ \\t\\r\\n]*");
    std::vector<std::string> keys;
    for (const std::string_view key : MessageKeys()) keys.push_back(std::string(key) + "\"");
    text_.Rule("key", Other(keys, "\\\\", "\\\\"));
    text_.Rule("object", R"("{" s ([^" \t\r\n] rest | "\"" key)?)");
    // What it begins with has rules of its own here, or is read as a thought.
    std::vector<std::string> others = {"{"};
    for (const Marker& marker : format_.thoughts) others.emplace_back(marker.text);
    std::string any = call + " | object | text";
    if (shape_.fence.empty()) {
      text_.Rule("text", Other(others, " \\t\\r\\n", ""));
      return fmt::format("s ({})", any);
    }
    others.emplace_back(shape_.fence);
    text_.Rule("text", Other(others, " \\t\\r\\n", ""));
    text_.Rule("items", R"([^[{ \t\r\n] rest | object | "[" s items?)");
    text_.Rule("fenced",
               fmt::format(R"({} s ({} s "```"? | items)?)", GbnfLiteral(shape_.fence), call));
    return fmt::format("s ({} | fenced)", any);
  }

  // A text that begins with none of `words`, nor with `first_not`; nor, behind the start of one of
  // them, goes on with `then_not`. Both are members of a class.
  static std::string Other(const std::vector<std::string>& words, std::string_view first_not,
                           std::string_view then_not) {
    std::map<char, std::vector<std::string>> ways;
    for (const std::string& word : words) ways[word.front()].push_back(word.substr(1));
    std::string others(first_not), on;
    for (const auto& [first, rests] : ways) {
      others += GbnfClassMember({first});
      if (std::ranges::find(rests, "") != rests.end()) continue;
      on += fmt::format(" | {} {}", GbnfLiteral({&first, 1}), Other(rests, then_not, then_not));
    }
    return fmt::format("([^{}] rest{})?", others, on);
  }

  // Of a prompt that ends inside a thought: what holds from the thought's end on.
  std::string BehindThought(ToolGrammar& grammar, const std::string& rest) {
    if (thought_.messages) return fmt::format("{} {}", ThoughtEnd(), rest);
    grammar.triggers = {std::string(thought_.end)};
    return fmt::format("{} {}", kBehindThought, rest);
  }

  // The rest of a thought, and what follows it.
  std::string ThoughtEnd() {
    const std::string end = text_.Until(thought_.end);
    if (thought_.behind.empty()) return fmt::format("{} {}", end, kBehindThought);
    return fmt::format("{} {}", end, text_.Fixed(thought_.behind));
  }

  // A thought, with `times` (?, *) where something opens it.
  std::string Thought(std::string_view times = "?") {
    if (thought_.open.empty()) return ThoughtEnd() + " ";
    return fmt::format("({} {}){} ", text_.Fixed(thought_.open), ThoughtEnd(), times);
  }

  // An answer that matches this expression.
  std::string Answer(const std::string& answer) const {
    return std::string(format_.answer_open) + answer;
  }

  std::string Calls(const std::vector<Tool>& tools, bool parallel) {
    std::string any;
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string name = fmt::format("call-{}", i);
      text_.Rule(name, format_.call(text_, tools[i], name));
      any.append(any.empty() ? "" : " | ").append(name);
    }
    text_.Rule("call", any);
    std::string calls = text_.Fixed(shape_.open, 1);
    calls += calls.empty() ? "call" : " call";
    if (parallel && shape_.list)
      calls += fmt::format(" ({}{}call)*", text_.Fixed(shape_.separator),
                           shape_.separator.empty() ? "" : " ");
    if (!shape_.close.empty()) calls.append(" ").append(text_.Fixed(shape_.close));
    return calls;
  }

  const FormatEntry& format_;
  const CallShape& shape_;
  const ThoughtShape& thought_;
  GrammarText text_;
};

// As the format writes it, or the generic one.
std::string CallText(AnswerFormat format, const std::string& name, const std::string& arguments) {
  return EntryOf(ToldFormat(format)).written(name, arguments);
}

}  // namespace

ToolGrammar MakeToolGrammar(AnswerFormat format, const Json& tools, const ToolChoice& choice,
                            const ToolGrammarOptions& options) {
  return Maker(format).Make(ReadTools(tools, choice), choice, options);
}

ToolGrammar MakeAnswerGrammar(AnswerFormat format, const std::string& answer,
                              const ToolGrammarOptions& options) {
  return Maker(format).MakeAnswer(answer, options);
}

std::string EndOfThought(AnswerFormat format) { return std::string(EntryOf(format).thought.end); }

AnswerFormat ToldFormat(AnswerFormat format) {
  return EntryOf(format).written != nullptr ? format : AnswerFormat::kGeneric;
}

std::string CallAsJson(const std::string& name, const std::string& arguments) {
  std::string json = "{\"name\": \"";
  AppendJsonEscaped(json, name);
  return fmt::format("{}\", \"arguments\": {}}}", json, arguments);
}

std::string MakeToolInstructions(AnswerFormat format, const Json& tools) {
  std::string text =
      "You may call functions to help with the user's request. These functions exist, one a line "
      "as JSON:\n";
  if (tools.is_array()) {
    for (const Json& tool : tools) {
      const bool inner = tool.is_object() && tool.contains("function");
      text += DumpJson(inner ? tool["function"] : tool) + "\n";
    }
  }
  text += fmt::format("To call one, answer with nothing but {} of this form:\n{}\n",
                      EntryOf(ToldFormat(format)).written_as, CallText(format, "NAME", "{...}"));
  text +=
      "The arguments must fit the function's parameters. The result comes in the next message. If "
      "no function is needed, answer in plain text.";
  return text;
}

std::string MakeCallText(AnswerFormat format, const std::string& name,
                         const std::string& arguments) {
  const auto parsed = TryParseJsonText<Json>(arguments);
  return CallText(format, name, parsed && parsed->is_object() ? arguments : DumpJson(arguments));
}

}  // namespace larder::serving::answer
