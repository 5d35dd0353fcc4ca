#include "serving/answer/grammar_text.h"

#include <fmt/format.h>

#include <algorithm>
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

// A property's schema with what its references may point to.
Json PropertySchema(const Tool& tool, const Json& property) {
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

}  // namespace

std::string GbnfClassMember(const std::string& character) {
  if (character == "\n") return "\\n";
  if (character == "[" || character == "]" || character == "\\")
    return fmt::format("\\{}", character);
  return character;  // no marker has ^ or -
}

std::string GbnfJson(const Json& schema) {
  SpendWork(StepsOf(schema));
  return "%json " + schema.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string GbnfJsonCall(const Tool& tool, const JsonCallForm& form) {
  std::string open = fmt::format("{}\"{}\": \"", form.before, form.name);
  AppendJsonEscaped(open, tool.name);
  open += fmt::format("\", \"{}\": ", form.arguments);
  return fmt::format("{} {} {}", GbnfLiteral(open), GbnfJson(tool.schema),
                     GbnfLiteral(form.behind));
}

bool IsRequired(const Json& schema, const std::string& key) {
  const auto required = schema.find("required");
  SpendWork(1 + (required == schema.end() ? 0 : required->size()));
  return required != schema.end() && required->is_array() &&
         std::find(required->begin(), required->end(), key) != required->end();
}

std::string GrammarText::Fixed(std::string_view text) const {
  const size_t at = tag_token_.empty() ? std::string_view::npos : text.find(tag_token_);
  if (at != std::string_view::npos)
    return GbnfLiteral(text.substr(0, at)) + " " + GbnfToken(tag_token_) + " " +
           GbnfLiteral(text.substr(at + tag_token_.size()));
  const bool marker = text.size() > 2 && (text.front() == '<' || text.front() == '[');
  return marker ? GbnfToken(text) : GbnfLiteral(text);
}

std::string GrammarText::Fixed(const std::vector<std::string_view>& texts, size_t from) const {
  std::string all;
  for (size_t i = from; i < texts.size(); ++i)
    all.append(all.empty() ? "" : " ").append(Fixed(texts[i]));
  return all;
}

std::string GrammarText::Rule(std::string_view name, const std::string& expression) {
  SpendWork(StepsOfText(expression.size()));
  if (rules_.size() + expression.size() > kMostGbnfBytes)
    throw Error("the grammar of its calls has more than {} bytes", kMostGbnfBytes);
  rules_ += fmt::format("{} ::= {}\n", name, expression);
  return std::string(name);
}

bool GrammarText::First(std::string_view name) {
  if (std::ranges::find(firsts_, name) != firsts_.end()) return false;
  firsts_.emplace_back(name);
  return true;
}

// No proper start of a marker begins inside itself, so what has been read of it is none of it, its
// first character, or more; `again` leads back to the first character, `none` to none. The whole
// marker is its own token, where there is one.
std::string GrammarText::Until(std::string_view marker) {
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
    LARDER_CHECK(!repeats || have + 1 == text.size(), "the marker {} begins inside itself", marker);
    if (!repeats && have > 1) again.append(" | ").append(path).append(GbnfLiteral(first));
    none += fmt::format("{}{}[^{}{}]", none.empty() ? "" : " | ", path, GbnfClassMember(first),
                        repeats ? "" : GbnfClassMember(text[have]));
    read += text[have];
  }
  Rule(name + "-again", again);
  Rule(name + "-none", none);
  Rule(name, fmt::format("([^{0}] | {1} {2}-again* {2}-none)* ({1} {2}-again* {3} | {4})",
                         GbnfClassMember(first), GbnfLiteral(first), name, GbnfLiteral(read),
                         Fixed(marker)));
  return name;
}

std::string GrammarText::XmlParameters(const Tool& tool, const std::string& rule,
                                       TagPair (*tags)(const std::string&, bool)) {
  std::string all;
  const auto properties = tool.schema.find("properties");
  if (properties == tool.schema.end() || !properties->is_object()) return all;
  size_t number = 0;
  for (const auto& [key, property] : properties->items()) {
    const bool is_string = SchemaTypes(property, tool.schema) == json_type::kString;
    const TagPair pair = tags(key, is_string);
    const std::string name = fmt::format("{}-{}", rule, number++);
    Rule(name, pair.open + " " + XmlValue(tool, property, is_string, pair.close));
    all.append(" ").append(name).append(IsRequired(tool.schema, key) ? "" : "?");
  }
  return all;
}

std::string GrammarText::PythonCall(const Tool& tool, const std::string& rule) {
  std::vector<std::pair<std::string_view, const Json*>> properties;
  const auto of = tool.schema.find("properties");
  if (of != tool.schema.end() && of->is_object()) {
    for (const auto& [key, property] : of->items()) properties.emplace_back(key, &property);
  }
  const auto readable = [](const auto& property) { return IsPythonName(property.first); };
  if (!IsPythonName(tool.name) || !std::ranges::all_of(properties, readable))
    return GbnfJsonCall(tool);
  // From the last argument to the first: what may follow behind another one, and what where there
  // is none yet.
  std::string behind = "\")\"", first = behind;
  for (size_t i = properties.size(); i-- > 0;) {
    const std::string key(properties[i].first);
    const std::string name = fmt::format("{}-{}", rule, i);
    const std::string value = GbnfJson(PropertySchema(tool, *properties[i].second));
    const std::string argument =
        Rule(name, fmt::format("{} {}", GbnfLiteral(fmt::format("{}=", key)), value));
    // This argument and what follows it or, unless it is required, what the next ones are without.
    const auto with = [&](const std::string& without) {
      return IsRequired(tool.schema, key) ? fmt::format("{} {}", argument, behind)
                                          : fmt::format("{} {} | {}", argument, behind, without);
    };
    first = Rule(fmt::format("{}-first", name), with(first));
    behind = Rule(fmt::format("{}-more", name), fmt::format("\", \" {}", with(behind)));
  }
  return GbnfLiteral(tool.name + "(") + " " + first;
}

std::string GrammarText::XmlValue(const Tool& tool, const Json& property, bool is_string,
                                  const std::string& close) {
  const size_t begin = close.starts_with('\n') ? 1 : 0;
  const std::string tag = close.substr(begin, close.size() - 1 - begin);
  const std::string closed = (begin > 0 ? "\"\\n\" " : "") + Fixed(tag) + " \"\\n\"";
  if (!is_string) return GbnfJson(PropertySchema(tool, property)) + " " + closed;
  const auto values = property.find("enum");
  if (values == property.end() || !values->is_array() || values->empty()) {
    // The tag alone ends the value, whatever stands beside it.
    return Until(tag) + " \"\\n\"";
  }
  std::string any;
  for (const Json& value : *values) {
    if (value.is_string())
      any.append(any.empty() ? "" : " | ").append(GbnfLiteral(value.get_ref<const std::string&>()));
  }
  return fmt::format("({}) {}", any, closed);
}

}  // namespace larder::serving::answer
