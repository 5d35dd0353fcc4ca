#include "serving/fields/constraints.h"

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "serving/grammar/gbnf.h"

namespace larder::serving::inline fields {
namespace {

constexpr size_t kMostGrammars = 64;
constexpr size_t kMostKeptBytes = 16u << 20;  // bytes of grammars with their texts

// The latest used first. The lock is held for a look-up only: two requests may compile the same
// text at once.
class KeptGrammars {
 public:
  template <typename Compile>
  std::shared_ptr<const Grammar> Of(const std::string& key, Compile compile) {
    {
      const std::lock_guard lock(mutex_);
      for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        if (entry->text != key) continue;
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->grammar;
      }
    }
    std::shared_ptr<const Grammar> grammar = compile();
    const size_t bytes = key.size() + grammar->bytes();
    if (bytes > kMostKeptBytes / 2) return grammar;
    std::list<Entry> dropped;  // freed without the lock
    const std::lock_guard lock(mutex_);
    entries_.push_front({key, grammar, bytes});
    bytes_ += bytes;
    while (entries_.size() > kMostGrammars || bytes_ > kMostKeptBytes) {
      bytes_ -= entries_.back().bytes;
      dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
    }
    return grammar;
  }
  size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Entry {
    std::string text;
    std::shared_ptr<const Grammar> grammar;
    size_t bytes;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;
  size_t bytes_ = 0;
};

KeptGrammars& Kept() {
  static KeptGrammars kept;
  return kept;
}

std::shared_ptr<const Grammar> OfRegex(const std::string& pattern) {
  return Kept().Of("r" + pattern, [&] { return Grammar::FromRegex(pattern); });
}

TextForm OfGbnf(const std::string& text) {
  return {.schema = nullptr, .grammar = GrammarOfGbnf(text), .gbnf = GbnfOfGrammar(text)};
}

TextForm OfChoices(const Json& choices, const std::string& name) {
  if (!choices.is_array() || choices.empty()) JsonFields::Fail(name, choices, "an array of texts");
  std::string gbnf = "root ::= ";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!choices[i].is_string()) JsonFields::Fail(name, choices, "an array of texts");
    if (i > 0) gbnf += " | ";
    gbnf += GbnfLiteral(choices[i].get<std::string>());
  }
  return OfGbnf(gbnf + "\n");
}

Json AnyObject() { return {{"type", "object"}}; }

// A schema, or the text of one.
Json SchemaIn(const Json& field, const std::string& name) {
  const auto check = [&](const Json& schema) {
    if (!schema.is_object() && !schema.is_boolean()) JsonFields::Fail(name, field, "a JSON schema");
  };
  if (!field.is_string()) {
    check(field);
    return field;
  }
  try {
    auto schema = ParseJsonText<Json>(field.get_ref<const std::string&>());
    check(schema);
    return schema;
  } catch (const JsonError& error) {
    throw Refused(400, "{} {}: expected a JSON schema", name, error.what()).On(name);
  }
}

// The schema of a response_format under its field's `name`; null: any text.
Json SchemaOfFormat(const Json& format, const std::string& name) {
  if (!format.is_object()) JsonFields::Fail(name, format, "an object with a type");
  const auto has = [](const Json& in, const char* field) {
    return in.contains(field) && !in[field].is_null();
  };
  const Json type = format.value("type", Json("text"));
  if (type == "text") return nullptr;
  if (type == "json_object")  // llama-server's may have a schema
    return has(format, "schema") ? SchemaIn(format["schema"], name + ".schema") : AnyObject();
  if (type != "json_schema")
    JsonFields::Fail(name + ".type", type, "\"text\", \"json_object\" or \"json_schema\"");
  if (!has(format, "json_schema")) {  // OpenAI's Responses have it flat
    if (has(format, "schema")) return SchemaIn(format["schema"], name + ".schema");
    const char* field = name == "response_format" ? "json_schema" : "schema";
    throw Refused(400, "{}.{} is missing: expected {}", name, field,
                  name == "response_format" ? "{\"name\":...,\"schema\":{...}}" : "a JSON schema")
        .On(name);
  }
  const Json& named = format["json_schema"];
  if (!named.is_object()) JsonFields::Fail(name + ".json_schema", named, "an object with a schema");
  // OpenAI's may leave it out.
  return has(named, "schema") ? SchemaIn(named["schema"], name + ".json_schema.schema")
                              : AnyObject();
}

// What `compile` makes of the field; its errors name the field.
template <typename Compile>
TextForm Named(const std::string& name, Compile compile) {
  try {
    return compile();
  } catch (const Refused&) {
    throw;
  } catch (const Error& error) {
    const std::string why = error.what();
    if (why.starts_with(name + ":")) throw Refused(400, "{}", why).On(name);
    throw Refused(400, "{}: {}", name, why).On(name);
  }
}

using Reader = TextForm (*)(const Json&, const std::string&);

std::string TextIn(const Json& field, const std::string& name) {
  if (!field.is_string()) JsonFields::Fail(name, field, "a string");
  return field.get<std::string>();
}

struct Field {
  const char* name;
  Reader read;
};
TextForm OfSchema(Json schema) {
  if (schema.is_null()) return {};
  std::shared_ptr<const Grammar> grammar = GrammarOfSchema(schema);
  return {.schema = std::move(schema), .grammar = std::move(grammar), .gbnf = {}};
}
TextForm ReadSchema(const Json& field, const std::string& name) {
  return OfSchema(SchemaIn(field, name));
}
TextForm ReadGbnfText(const Json& field, const std::string& name) {
  return OfGbnf(TextIn(field, name));
}
TextForm ReadRegex(const Json& field, const std::string& name) {
  const std::string pattern = TextIn(field, name);
  return {.schema = nullptr, .grammar = OfRegex(pattern), .gbnf = GbnfOfRegex(pattern)};
}
TextForm ReadJsonObject(const Json& field, const std::string& /*name*/) {
  return field == true ? OfSchema(AnyObject()) : TextForm();
}

constexpr Field kFields[] = {
    {"json_schema", ReadSchema},           {"grammar", ReadGbnfText},
    {"guided_json", ReadSchema},           {"guided_regex", ReadRegex},
    {"guided_choice", OfChoices},          {"guided_grammar", ReadGbnfText},
    {"guided_json_object", ReadJsonObject}};
constexpr Field kStructured[] = {{"json", ReadSchema},
                                 {"regex", ReadRegex},
                                 {"choice", OfChoices},
                                 {"grammar", ReadGbnfText},
                                 {"json_object", ReadJsonObject}};

}  // namespace

std::shared_ptr<const Grammar> GrammarOfGbnf(const std::string& text) {
  return Kept().Of("g" + text, [&] { return Grammar::FromGbnf(text); });
}

std::shared_ptr<const Grammar> GrammarOfSchema(const Json& schema) {
  return Kept().Of(fmt::format("s{}", schema.dump(-1, ' ', false, Json::error_handler_t::replace)),
                   [&] { return Grammar::FromJsonSchema(schema); });
}

size_t KeptGrammarBytes() { return Kept().bytes(); }

TextForm ReadFormat(const Json& format, const std::string& name) {
  return Named(name, [&] { return OfSchema(SchemaOfFormat(format, name)); });
}

TextForm ReadConstraint(const JsonFields& fields) {
  TextForm form;
  std::string first;
  const auto read = [&](const std::string& name, auto compile) {
    TextForm one = Named(name, compile);
    if (one.grammar == nullptr) return;
    if (form.grammar != nullptr)
      throw Refused(400, "{} and {}: expected only one of them", first, name).On(name);
    form = std::move(one);
    first = name;
  };
  if (const Json* format = fields.Find("response_format"))
    read("response_format", [&] { return ReadFormat(*format, "response_format"); });
  for (const Field& field : kFields) {
    if (!fields.Has(field.name)) continue;
    const Json value(*fields.Find(field.name));
    if (IsEmptyText(value)) continue;
    read(field.name, [&] { return field.read(value, field.name); });
  }
  if (fields.Has("structured_outputs")) {
    const Json outputs(*fields.Find("structured_outputs"));
    if (!outputs.is_object()) JsonFields::Fail("structured_outputs", outputs, "an object");
    for (const Field& field : kStructured) {
      if (!outputs.contains(field.name) || outputs[field.name].is_null()) continue;
      const std::string name = std::string("structured_outputs.") + field.name;
      read(name, [&] { return field.read(outputs[field.name], name); });
    }
  }
  return form;
}

}  // namespace larder::serving::fields
