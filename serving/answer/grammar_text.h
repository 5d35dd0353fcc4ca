// GrammarText: the text of one grammar of calls, in GBNF, rule by rule, and what formats write
// theirs with. Names and schemas come from a client: their size is work of the thread's Work. One
// per grammar, owned by the thread that makes it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace larder::serving::inline answer {

struct Tool {
  std::string name;
  nlohmann::ordered_json schema;  // of its parameters: an object
};

// A character (UTF-8) as a member of a class, [...].
std::string GbnfClassMember(const std::string& character);
// A JSON text of the schema.
std::string GbnfJson(const nlohmann::ordered_json& schema);

// A call that is one JSON object: its two keys, and what stands around name and arguments.
struct JsonCallForm {
  std::string_view name = "name", arguments = "arguments";
  std::string_view before = "{", behind = "}";
};
std::string GbnfJsonCall(const Tool&, const JsonCallForm& = {});

// Whether the schema of an object requires the key.
bool IsRequired(const nlohmann::ordered_json& schema, const std::string& key);

// The tags around a parameter's value.
struct TagPair {
  std::string open;   // in GBNF
  std::string close;  // the text: a tag, perhaps a line end before it, and one behind it
};

class GrammarText {
 public:
  // tag_token: FormatEntry::tag_token.
  explicit GrammarText(std::string_view tag_token) : tag_token_(tag_token) {}

  // A fixed part of a form: its markers are the tokens that they are in the vocabulary, so that
  // what follows is what the model was trained on, and the next turn's prompt begins with the same
  // tokens.
  std::string Fixed(std::string_view text) const;
  // The same for texts one after the other, from texts[from] on.
  std::string Fixed(const std::vector<std::string_view>& texts, size_t from = 0) const;
  // Adds a rule and returns its name. Throws Error where the text becomes too long.
  std::string Rule(std::string_view name, const std::string& expression);
  // Whether this is the first question for `name`: rules that several calls share are added once.
  bool First(std::string_view name);
  // The name of a rule: any text that ends with the first `marker` in it.
  std::string Until(std::string_view marker);
  // The parameters of a tool as tags, in the schema's order, those that are not required optional.
  // Strings are free text up to the closing tag, unless their values are listed; other values are
  // JSON. rule: what the names of the parameters' rules begin with.
  std::string XmlParameters(const Tool&, const std::string& rule,
                            TagPair (*tags)(const std::string& key, bool is_string));
  // name(key=value, ...): keys in the schema's order, those that are not required optional. Values
  // are JSON. The call is JSON if one of its names can't be read so. rule: what the names of its
  // rules begin with.
  std::string PythonCall(const Tool&, const std::string& rule);

  const std::string& rules() const { return rules_; }

 private:
  std::string XmlValue(const Tool&, const nlohmann::ordered_json& property, bool is_string,
                       const std::string& close);

  std::string_view tag_token_;
  std::string rules_;
  std::vector<std::string> untils_, firsts_;
};

}  // namespace larder::serving::answer
