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
#include "serving/grammar/gbnf.h"
#include "serving/grammar/schema_merge.h"

namespace larder::serving::inline answer {
namespace {

using Json = nlohmann::ordered_json;

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The inside of a JSON string.
std::string InJson(std::string_view text) {
  std::string json;
  AppendJsonEscaped(json, text);
  return json;
}

std::vector<std::string> Characters(std::string_view text) {
  std::vector<std::string> characters;
  for (const char c : text) {
    const bool continues = (static_cast<unsigned char>(c) & 0xc0) == 0x80;
    if (continues && !characters.empty()) {
      characters.back() += c;
    } else {
      characters.emplace_back(1, c);
    }
  }
  return characters;
}

std::string InClass(const std::string& character) {
  if (character == "\n") return "\\n";
  if (character == "[" || character == "]" || character == "\\")
    return fmt::format("\\{}", character);
  return character;  // no marker has ^ or -
}

// A fixed part of a form: its markers are the tokens that they are in the vocabulary, so that what
// follows is what the model was trained on, and the next turn's prompt begins with the same tokens.
std::string Fixed(std::string_view text) {
  constexpr std::string_view kDsml = "｜DSML｜";  // a token inside of tags
  const size_t at = text.find(kDsml);
  if (at != std::string_view::npos)
    return GbnfLiteral(text.substr(0, at)) + " " + GbnfToken(kDsml) + " " +
           GbnfLiteral(text.substr(at + kDsml.size()));
  const bool marker = text.size() > 2 && (text.front() == '<' || text.front() == '[');
  return marker ? GbnfToken(text) : GbnfLiteral(text);
}

struct Tool {
  std::string name;
  Json schema;
};

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

// How calls stand in the text: open call (separator call)* close. The first literal of `open` is
// what a constraint of free text begins behind.
struct CallShape {
  std::vector<std::string_view> open;
  std::vector<std::string_view> separator;
  std::vector<std::string_view> close;
  bool list = false;    // more than one call is possible
  bool trigger = true;  // open's first text tells a call from other text
  std::string_view thought_end = "</think>";
  std::string_view thought_open = "<think>";
  std::string_view fence = {};  // a call without a marker may stand behind it
};

CallShape ShapeOf(AnswerFormat format) {
  using Format = AnswerFormat;
  switch (format) {
    case Format::kHermes:
      return {{"<tool_call>"}, {"\n", "<tool_call>"}, {}, true};
    case Format::kQwenXml:
      return {{"<tool_call>"}, {"\n", "<tool_call>"}, {}, true};
    case Format::kSeedOss:
      return {.open = {"<seed:tool_call>"},
              .separator = {"\n", "<seed:tool_call>"},
              .list = true,
              .thought_end = "</seed:think>",
              .thought_open = "<seed:think>"};
    case Format::kGlm:
      return {{"<tool_call>"}, {"\n", "<tool_call>"}, {}, true};
    case Format::kLlama3:
      return {.open = {"{\"name\": \""}, .trigger = false};
    case Format::kMistral:
    case Format::kMistralArgs: {
      CallShape shape{.open = {"[TOOL_CALLS]"},
                      .list = true,
                      .thought_end = "[/THINK]",
                      .thought_open = "[THINK]"};
      if (format == Format::kMistralArgs) {
        shape.separator = {"[TOOL_CALLS]"};
      } else {
        shape.open.push_back("[");
        shape.separator = {", "};
        shape.close = {"]"};
      }
      return shape;
    }
    case Format::kDeepSeekV3:
    case Format::kDeepSeekV31: {
      CallShape shape{.open = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                      .separator = {"<｜tool▁call▁begin｜>"},
                      .close = {"<｜tool▁calls▁end｜>"},
                      .list = true};
      if (format == Format::kDeepSeekV3) shape.separator = {"\n", "<｜tool▁call▁begin｜>"};
      return shape;
    }
    case Format::kDeepSeekV4:
      return {{"<｜DSML｜tool_calls>", "\n"}, {"\n"}, {"\n", "</｜DSML｜tool_calls>"}, true};
    case Format::kGemma4:
      return {.open = {"<|tool_call>"},
              .separator = {"<|tool_call>"},
              .list = true,
              .thought_end = "<channel|>",
              .thought_open = "<|channel>"};
    case Format::kHarmony:
      return {.open = {" to=functions."}};
    case Format::kCommandR:
      return {{"Action: ```json", "\n[\n"}, {",\n"}, {"\n]```"}, true};
    case Format::kCommandR7b:
      return {{"<|START_ACTION|>", "[\n    "},
              {",\n    "},
              {"\n]", "<|END_ACTION|>"},
              true,
              true,
              "<|END_THINKING|>",
              "<|START_THINKING|>"};
    case Format::kKimiK2:
      return {{"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
              {"<|tool_call_begin|>"},
              {"<|tool_calls_section_end|>"},
              true};
    case Format::kApriel:
      return {{"<tool_calls>", "["},    {", "}, {"]", "</tool_calls>"}, true, true,
              "[BEGIN FINAL RESPONSE]", ""};
    case Format::kGigaChat:
      return {.open = {"<|function_call|>"}};
    case Format::kFunctionary31:
      return {{"<function="}, {"<function="}, {}, true};
    case Format::kFunctionary32:
      return {{">>>"}, {">>>"}, {}, true};
    case Format::kFireFunction:
      return {{"functools["}, {", "}, {"]"}, true};
    case Format::kMiroThinker:
      return {{"<use_mcp_tool>", "\n"}, {"\n"}, {"\n", "</use_mcp_tool>"}, true};
    case Format::kLfm2:
      return {{"<|tool_call_start|>", "["}, {", "}, {"]", "<|tool_call_end|>"}, true};
    case Format::kGeneric:
      break;
  }
  return {.open = {"{\"tool_call\": "}, .trigger = false, .fence = "```json\n"};
}

// As templates have it. No more: a model that would rather write something else than what has to
// follow would go on with empty lines.
constexpr std::string_view kBehindThought = R"("\n"? "\n"?)";

class GrammarText {
 public:
  explicit GrammarText(AnswerFormat format) : format_(format), shape_(ShapeOf(format)) {}

  ToolGrammar Make(const std::vector<Tool>& tools, const ToolChoice& choice,
                   const ToolGrammarOptions& options) {
    const bool is_auto = choice.kind == ToolChoice::Kind::kAuto;
    std::string calls = Calls(tools, options.parallel);
    ToolGrammar grammar;
    if (is_auto && shape_.trigger) {
      grammar.triggers = {std::string(shape_.open.front())};
    } else {
      calls = Opening() + " " + calls;
      if (!options.schema.is_null()) calls = fmt::format("({} | {})", calls, Text(options.schema));
      if (is_auto) calls = CallOrText(calls);
      if (options.starts_in_reasoning && format_ != AnswerFormat::kHarmony) {
        calls = BehindThought(grammar, calls);
      } else if (options.may_think || is_auto) {
        calls = (is_auto ? "s " : "") + Thought() + calls;
      }
    }
    grammar.gbnf = "root ::= " + calls + "\n" + rules_;
    return grammar;
  }

  ToolGrammar MakeAnswer(const Json& schema, const ToolGrammarOptions& options) {
    ToolGrammar grammar;
    std::string root = Text(schema);
    if (format_ == AnswerFormat::kHarmony) {
      root = HarmonyThought() + "* " + root;
      if (options.starts_in_reasoning)
        root = fmt::format(R"({} %token "<|start|>" "assistant" {})", Until("<|end|>"), root);
    } else if (options.starts_in_reasoning) {
      root = BehindThought(grammar, root);
    } else if (options.may_think) {
      root = Thought() + root;
    }
    grammar.gbnf = "root ::= " + root + "\n" + rules_;
    return grammar;
  }

 private:
  std::string Rule(std::string_view name, const std::string& expression) {
    SpendWork(StepsOfText(expression.size()));
    if (rules_.size() + expression.size() > kMostGbnfBytes)
      throw Error("the grammar of its calls has more than {} bytes", kMostGbnfBytes);
    rules_ += fmt::format("{} ::= {}\n", name, expression);
    return std::string(name);
  }

  static std::string Literals(const std::vector<std::string_view>& texts, size_t from = 0) {
    std::string all;
    for (size_t i = from; i < texts.size(); ++i)
      all.append(all.empty() ? "" : " ").append(Fixed(texts[i]));
    return all;
  }

  // Before the calls, where the text is not constrained by a trigger.
  std::string Opening() const {
    const std::string open = Fixed(shape_.open.front());
    return format_ == AnswerFormat::kHarmony ? R"(%token "<|channel|>" "commentary" )" + open
                                             : open;
  }

  // Where no marker tells a call from text (MakeJsonCalls of a whole message): a call, or a text
  // that cannot be read as one, by the key that its JSON begins with. JSON may stand in a fence.
  std::string CallOrText(const std::string& call) {
    Rule("rest", ".*");
    Rule("s", "[ \\t\\r\\n]*");
    std::vector<std::string> keys;
    for (const std::string_view key : MessageKeys()) keys.push_back(std::string(key) + "\"");
    Rule("key", Other(keys, "\\\\", "\\\\"));
    Rule("object", R"("{" s ([^" \t\r\n] rest | "\"" key)?)");
    // What it begins with has rules of its own here, or is read as a thought.
    std::vector<std::string> others = {"{", "<think>", "</think>"};
    std::string any = call + " | object | text";
    if (shape_.fence.empty()) {
      Rule("text", Other(others, " \\t\\r\\n", ""));
      return fmt::format("s ({})", any);
    }
    others.emplace_back(shape_.fence);
    Rule("text", Other(others, " \\t\\r\\n", ""));
    Rule("items", R"([^[{ \t\r\n] rest | object | "[" s items?)");
    Rule("fenced", fmt::format(R"({} s ({} s "```"? | items)?)", GbnfLiteral(shape_.fence), call));
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
      others += InClass({first});
      if (std::ranges::find(rests, "") != rests.end()) continue;
      on += fmt::format(" | {} {}", GbnfLiteral({&first, 1}), Other(rests, then_not, then_not));
    }
    return fmt::format("([^{}] rest{})?", others, on);
  }

  std::string HarmonyThought() {
    return fmt::format(R"((%token "<|channel|>" "analysis" %token "<|message|>" {} )"
                       R"(%token "<|start|>" "assistant"))",
                       Until("<|end|>"));
  }

  // An answer that is a JSON text.
  std::string Text(const Json& schema) const {
    if (format_ != AnswerFormat::kHarmony) return Atom(schema);
    return R"(%token "<|channel|>" "final" (" " (%token "<|constrain|>")? ("json" | "JSON"))? )"
           R"(%token "<|message|>" )" +
           Atom(schema);
  }

  // Of a prompt that ends inside a thought: what holds from the thought's end on.
  std::string BehindThought(ToolGrammar& grammar, const std::string& rest) const {
    grammar.triggers = {std::string(shape_.thought_end)};
    return fmt::format("{} {}", kBehindThought, rest);
  }

  // A thought that may come first.
  std::string Thought() {
    if (format_ == AnswerFormat::kHarmony) return HarmonyThought() + "? ";
    if (shape_.thought_open.empty())
      return fmt::format("{} {} ", Until(shape_.thought_end), kBehindThought);
    const std::string_view name = format_ == AnswerFormat::kGemma4 ? R"("thought\n" )" : "";
    return fmt::format("({} {}{} {})? ", Fixed(shape_.thought_open), name,
                       Until(shape_.thought_end), kBehindThought);
  }

  std::string Calls(const std::vector<Tool>& tools, bool parallel) {
    std::string any;
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string name = fmt::format("call-{}", i);
      Rule(name, Call(tools[i], name));
      any.append(any.empty() ? "" : " | ").append(name);
    }
    Rule("call", any);
    std::string calls = Literals(shape_.open, 1);
    calls += calls.empty() ? "call" : " call";
    if (parallel && shape_.list)
      calls += fmt::format(" ({}{}call)*", Literals(shape_.separator),
                           shape_.separator.empty() ? "" : " ");
    if (!shape_.close.empty()) calls.append(" ").append(Literals(shape_.close));
    return calls;
  }

  static std::string Atom(const Json& schema) {
    SpendWork(StepsOf(schema));
    return "%json " + DumpJson(schema);
  }

  static std::string JsonCall(const Tool& tool, std::string_view name_key,
                              std::string_view arguments_key, std::string_view before = "{",
                              std::string_view behind = "}") {
    return fmt::format("{} {} {}",
                       GbnfLiteral(fmt::format("{}\"{}\": \"{}\", \"{}\": ", before, name_key,
                                               InJson(tool.name), arguments_key)),
                       Atom(tool.schema), GbnfLiteral(behind));
  }

  std::string Call(const Tool& tool, const std::string& rule) {
    using Format = AnswerFormat;
    const std::string& name = tool.name;
    const std::string json = Atom(tool.schema);
    switch (format_) {
      case Format::kHermes:
        return JsonCall(tool, "name", "arguments", "\n{", "}\n") + " " + Fixed("</tool_call>");
      case Format::kMistral:
      case Format::kApriel:
      case Format::kGigaChat:
      case Format::kLfm2:
      case Format::kFireFunction:
        return JsonCall(tool, "name", "arguments");
      case Format::kGeneric:
        return JsonCall(tool, "name", "arguments", "{", "}}");
      case Format::kLlama3:
        return fmt::format("{} {} \"}}\"", GbnfLiteral(InJson(name) + "\", \"parameters\": "),
                           json);
      case Format::kCommandR:
        return JsonCall(tool, "tool_name", "parameters", "    {\n        ", "\n    }");
      case Format::kCommandR7b:
        return fmt::format("\"{{\\\"tool_call_id\\\": \\\"\" [0-9]+ {}",
                           JsonCall(tool, "tool_name", "parameters", "\", "));
      case Format::kMistralArgs:
        return fmt::format("{} %token \"[ARGS]\" {}", GbnfLiteral(name), json);
      case Format::kDeepSeekV3:
        return fmt::format(
            R"("function" %token "<｜tool▁sep｜>" {} {} "\n```" %token "<｜tool▁call▁end｜>")",
            GbnfLiteral(name + "\n```json\n"), json);
      case Format::kDeepSeekV31:
        return fmt::format(R"({} %token "<｜tool▁sep｜>" {} %token "<｜tool▁call▁end｜>")",
                           GbnfLiteral(name), json);
      case Format::kKimiK2:
        return fmt::format(
            R"({} [0-9]+ %token "<|tool_call_argument_begin|>" {} %token "<|tool_call_end|>")",
            GbnfLiteral("functions." + name + ":"), json);
      case Format::kHarmony:
        return fmt::format(
            R"({} (%token "<|channel|>" "commentary")? (" " (%token "<|constrain|>")? "json")? %token "<|message|>" {})",
            GbnfLiteral(name), json);
      case Format::kFunctionary31:
        return fmt::format("{} {} \"</function>\"", GbnfLiteral(name + ">"), json);
      case Format::kFunctionary32:
        return fmt::format("{} {}", GbnfLiteral(name + "\n"), json);
      case Format::kMiroThinker:
        return fmt::format(
            R"("<server_name>" [A-Za-z0-9_-]+ {} {} "\n</arguments>")",
            GbnfLiteral("</server_name>\n<tool_name>" + name + "</tool_name>\n<arguments>\n"),
            json);
      case Format::kGemma4:
        return GemmaCall(tool, rule);
      case Format::kQwenXml:
        return GbnfLiteral("\n<function=" + name + ">\n") + XmlParameters(tool, rule) +
               " \"</function>\\n\" " + Fixed("</tool_call>");
      case Format::kSeedOss:
        return GbnfLiteral("\n<function=" + name + ">\n") + XmlParameters(tool, rule) +
               " \"</function>\\n\" " + Fixed("</seed:tool_call>");
      case Format::kGlm:
        return GbnfLiteral(name + "\n") + XmlParameters(tool, rule) + " " + Fixed("</tool_call>");
      case Format::kDeepSeekV4:
        return Fixed("<｜DSML｜invoke name=\"" + name + "\">\n") + XmlParameters(tool, rule) + " " +
               Fixed("</｜DSML｜invoke>");
    }
    return {};
  }

  struct Pair {
    std::string open;   // as GBNF
    std::string close;  // the text: a tag, perhaps a line end before it, and one behind it
  };
  Pair XmlPair(const std::string& key, bool is_string) const {
    switch (format_) {
      case AnswerFormat::kGlm:
        return {fmt::format("{} {} {} \"\\n\" {}", Fixed("<arg_key>"), GbnfLiteral(key),
                            Fixed("</arg_key>"), Fixed("<arg_value>")),
                "</arg_value>\n"};
      case AnswerFormat::kDeepSeekV4:
        return {Fixed(fmt::format("<｜DSML｜parameter name=\"{}\" string=\"{}\">", key, is_string)),
                "</｜DSML｜parameter>\n"};
      case AnswerFormat::kSeedOss:
        return {GbnfLiteral("<parameter=" + key + ">"), "</parameter>\n"};
      default:
        return {GbnfLiteral("<parameter=" + key + ">\n"), "\n</parameter>\n"};
    }
  }

  static bool IsRequired(const Json& schema, const std::string& key) {
    const auto required = schema.find("required");
    SpendWork(1 + (required == schema.end() ? 0 : required->size()));
    return required != schema.end() && required->is_array() &&
           std::find(required->begin(), required->end(), key) != required->end();
  }

  // A property's schema with what its references may point to.
  static Json PropertySchema(const Tool& tool, const Json& property) {
    Json schema = property;
    for (const char* key : {"$defs", "definitions"}) {
      if (!schema.is_object() || !tool.schema.contains(key)) continue;
      const uint64_t steps = StepsOf(tool.schema[key]);
      SpendWork(3 * steps);
      HoldWork(steps * sizeof(Json));
      schema[key] = tool.schema[key];
    }
    return schema;
  }

  // The parameters in the schema's order, those that are not required optional. Strings are free
  // text up to the closing tag, unless their values are listed; other values are JSON.
  std::string XmlParameters(const Tool& tool, const std::string& rule) {
    std::string all;
    const auto properties = tool.schema.find("properties");
    if (properties == tool.schema.end() || !properties->is_object()) return all;
    size_t number = 0;
    for (const auto& [key, property] : properties->items()) {
      const bool is_string = SchemaTypes(property, tool.schema) == json_type::kString;
      const Pair pair = XmlPair(key, is_string);
      const std::string name = fmt::format("{}-{}", rule, number++);
      Rule(name, pair.open + " " + XmlValue(tool, property, is_string, pair.close));
      all.append(" ").append(name).append(IsRequired(tool.schema, key) ? "" : "?");
    }
    return all;
  }

  std::string XmlValue(const Tool& tool, const Json& property, bool is_string,
                       const std::string& close) {
    const size_t begin = close.starts_with('\n') ? 1 : 0;
    const std::string tag = close.substr(begin, close.size() - 1 - begin);
    const std::string closed = (begin > 0 ? "\"\\n\" " : "") + Fixed(tag) + " \"\\n\"";
    if (!is_string) return Atom(PropertySchema(tool, property)) + " " + closed;
    const auto values = property.find("enum");
    if (values == property.end() || !values->is_array() || values->empty()) {
      // The tag alone ends the value, whatever stands beside it.
      return Until(tag) + " \"\\n\"";
    }
    std::string any;
    for (const Json& value : *values) {
      if (value.is_string())
        any.append(any.empty() ? "" : " | ")
            .append(GbnfLiteral(value.get_ref<const std::string&>()));
    }
    return fmt::format("({}) {}", any, closed);
  }

  // Gemma's own notation has no schema of JSON: strings are free up to their quote, other values by
  // their type.
  std::string GemmaCall(const Tool& tool, const std::string& rule) {
    GemmaRules();
    std::string body;
    const auto properties = tool.schema.find("properties");
    std::vector<std::string> members;
    bool any_required = false;
    if (properties != tool.schema.end() && properties->is_object()) {
      std::vector<std::pair<std::string, Json>> sorted;  // as the template sorts them
      for (const auto& [key, property] : properties->items()) sorted.emplace_back(key, property);
      std::ranges::sort(sorted, {}, &std::pair<std::string, Json>::first);
      for (const auto& [key, property] : sorted) {
        const bool required = IsRequired(tool.schema, key);
        const std::string member =
            GbnfLiteral(key + ":") + " " + GemmaValue(SchemaTypes(property, tool.schema));
        if (required) {
          members.push_back(any_required ? "\",\" " + member : member);
        } else if (any_required) {
          members.push_back("(\",\" " + member + ")?");
        }
        any_required = any_required || required;
      }
      // Optional members in front of the first required one are left out: their commas would need a
      // rule each.
      if (!any_required && !sorted.empty()) {
        for (const auto& [key, property] : sorted) {
          body += (body.empty() ? "" : " | ") + GbnfLiteral(key + ":") + " " +
                  GemmaValue(SchemaTypes(property, tool.schema));
        }
        const std::string member = Rule(rule + "-member", body);
        body = fmt::format("({} (\",\" {})*)?", member, member);
      }
    }
    for (const std::string& member : members) body.append(body.empty() ? "" : " ").append(member);
    return fmt::format("{} {} \"}}\" {}", GbnfLiteral("call:" + tool.name + "{"), body,
                       Fixed("<tool_call|>"));
  }

  void GemmaRules() {
    if (gemma_) return;
    gemma_ = true;
    rules_ += "g-string ::= " + Fixed("<|\"|>") + " " + Until("<|\"|>") + "\n";
    rules_ += R"(g-integer ::= "-"? ("0" | [1-9] [0-9]*)
g-number ::= g-integer ("." [0-9]+)?
g-boolean ::= "true" | "false"
g-value ::= g-string | g-number | g-boolean | "null" | g-object | g-array
g-member ::= [A-Za-z_] [A-Za-z0-9_]* ":" g-value
g-object ::= "{" (g-member ("," g-member)*)? "}"
g-array ::= "[" (g-value ("," g-value)*)? "]"
)";
  }

  static std::string GemmaValue(unsigned types) {
    switch (types) {
      case json_type::kString:
        return "g-string";
      case json_type::kInteger:
        return "g-integer";
      case json_type::kNumber | json_type::kInteger:
        return "g-number";
      case json_type::kBoolean:
        return "g-boolean";
      case json_type::kObject:
        return "g-object";
      case json_type::kArray:
        return "g-array";
      default:
        return "g-value";
    }
  }

  // Any text that ends with the first `marker` in it. No proper start of a marker begins inside
  // itself, so what has been read of it is none of it, its first character, or more; `again` leads
  // back to the first character, `none` to none. The whole marker is its own token, where
  // there is one.
  std::string Until(std::string_view marker) {
    for (size_t i = 0; i < untils_.size(); ++i) {
      if (untils_[i] == marker) return fmt::format("until-{}", i);
    }
    const std::string name = fmt::format("until-{}", untils_.size());
    untils_.emplace_back(marker);
    const std::vector<std::string> text = Characters(marker);
    const std::string& first = text.front();
    std::string again = GbnfLiteral(first), none, read;
    for (size_t have = 1; have < text.size(); ++have) {
      const std::string path = read.empty() ? "" : GbnfLiteral(read) + " ";
      const bool repeats = text[have] == first;
      LARDER_CHECK(!repeats || have + 1 == text.size(), "the marker {} begins inside itself",
                   marker);
      if (!repeats && have > 1) again.append(" | ").append(path).append(GbnfLiteral(first));
      none += fmt::format("{}{}[^{}{}]", none.empty() ? "" : " | ", path, InClass(first),
                          repeats ? "" : InClass(text[have]));
      read += text[have];
    }
    Rule(name + "-again", again);
    Rule(name + "-none", none);
    Rule(name,
         fmt::format("([^{0}] | {1} {2}-again* {2}-none)* ({1} {2}-again* {3} | {4})",
                     InClass(first), GbnfLiteral(first), name, GbnfLiteral(read), Fixed(marker)));
    return name;
  }

  AnswerFormat format_;
  CallShape shape_;
  std::string rules_;
  std::vector<std::string> untils_;
  bool gemma_ = false;
};

std::string CallText(AnswerFormat format, const std::string& name, const std::string& arguments) {
  const std::string json =
      fmt::format(R"({{"name": "{}", "arguments": {}}})", InJson(name), arguments);
  switch (ToldFormat(format)) {
    case AnswerFormat::kHermes:
      return "<tool_call>\n" + json + "\n</tool_call>";
    case AnswerFormat::kLfm2:
      return "<|tool_call_start|>[" + json + "]<|tool_call_end|>";
    case AnswerFormat::kDeepSeekV3:
      return fmt::format(
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```"
          "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          name, arguments);
    case AnswerFormat::kDeepSeekV31:
      return fmt::format(
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}"
          "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          name, arguments);
    default:
      return "{\"tool_call\": " + json + "}";
  }
}

}  // namespace

ToolGrammar MakeToolGrammar(AnswerFormat format, const Json& tools, const ToolChoice& choice,
                            const ToolGrammarOptions& options) {
  return GrammarText(format).Make(ReadTools(tools, choice), choice, options);
}

ToolGrammar MakeAnswerGrammar(AnswerFormat format, const Json& schema,
                              const ToolGrammarOptions& options) {
  return GrammarText(format).MakeAnswer(schema, options);
}

AnswerFormat ToldFormat(AnswerFormat format) {
  switch (format) {
    case AnswerFormat::kHermes:
    case AnswerFormat::kLfm2:
    case AnswerFormat::kDeepSeekV3:
    case AnswerFormat::kDeepSeekV31:
      return format;
    default:
      return AnswerFormat::kGeneric;
  }
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
  const bool generic = ToldFormat(format) == AnswerFormat::kGeneric;
  text += fmt::format("To call one, answer with nothing but {} of this form:\n{}\n",
                      generic ? "a JSON object" : "text", CallText(format, "NAME", "{...}"));
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
