#include <cmath>
#include <unordered_set>
#include <vector>

#include "base/json_text.h"
#include "base/work.h"
#include "serving/answer/call_machine.h"

namespace larder::serving::inline answer {
namespace {

using Json = nlohmann::ordered_json;

unsigned TypeByName(std::string_view name) {
  if (name == "string") return json_type::kString;
  if (name == "number") return json_type::kNumber | json_type::kInteger;
  if (name == "integer") return json_type::kInteger;
  if (name == "boolean") return json_type::kBoolean;
  if (name == "object") return json_type::kObject;
  if (name == "array") return json_type::kArray;
  if (name == "null") return json_type::kNull;
  return 0;
}

unsigned TypeOf(const Json& value) {
  if (value.is_string()) return json_type::kString;
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    return json_type::kNumber | (number == std::floor(number) ? json_type::kInteger : 0);
  }
  if (value.is_number()) return json_type::kInteger;
  if (value.is_boolean()) return json_type::kBoolean;
  if (value.is_object()) return json_type::kObject;
  if (value.is_array()) return json_type::kArray;
  return json_type::kNull;
}

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

const Json* Resolve(const Json& reference, const Json& root) {
  if (!reference.is_string()) return nullptr;
  const auto& text = reference.get_ref<const std::string&>();
  if (!text.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(text.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

std::string StringAsJson(std::string_view text) {
  std::string json = "\"";
  AppendJsonEscaped(json, text);
  json += '"';
  return json;
}

}  // namespace

unsigned SchemaTypes(const Json& schema, const Json& root) {
  // Each part costs one, following a reference what finding its place in large objects does.
  constexpr size_t kMost = 8192, kReference = 256;
  size_t left = kMost;
  unsigned all = 0;
  bool or_null = false;
  std::vector<const Json*> to_do = {&schema};
  std::unordered_set<const Json*> seen;
  while (!to_do.empty()) {
    const Json& one = *to_do.back();
    to_do.pop_back();
    if (!seen.insert(&one).second) continue;
    const auto affords = [&left](size_t cost) {
      SpendWork(cost);
      if (cost > left) return false;
      left -= cost;
      return true;
    };
    if (!affords(1)) return 0;
    if (const Json* reference = Find(one, "$ref")) {
      if (!affords(kReference)) return 0;
      if (const Json* target = Resolve(*reference, root)) to_do.push_back(target);
      continue;
    }
    unsigned types = 0;
    if (const Json* type = Find(one, "type")) {
      const Json& names = *type;
      if (names.is_array() && !affords(names.size())) return 0;
      if (names.is_string()) types = TypeByName(names.get_ref<const std::string&>());
      if (names.is_array()) {
        for (const Json& name : names)
          types |= name.is_string() ? TypeByName(name.get_ref<const std::string&>()) : 0;
      }
    } else if (const Json* constant = Find(one, "const")) {
      types = TypeOf(*constant);
    } else if (const Json* values = Find(one, "enum"); values != nullptr && values->is_array()) {
      if (!affords(values->size())) return 0;
      for (const Json& value : *values) types |= TypeOf(value);
    } else {
      for (const char* key : {"anyOf", "oneOf", "allOf"}) {
        const Json* parts = Find(one, key);
        if (parts == nullptr || !parts->is_array()) continue;
        if (!affords(parts->size())) return 0;
        for (const Json& part : *parts) to_do.push_back(&part);
      }
    }
    const Json* nullable = Find(one, "nullable");
    or_null = or_null || (nullable != nullptr && *nullable == true);
    all |= types;
  }
  return all != 0 && or_null ? all | json_type::kNull : all;
}

ToolTable::ToolTable(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    const Json* function = Find(tool, "function");
    if (function == nullptr) function = &tool;
    const Json* name = Find(*function, "name");
    if (name == nullptr || !name->is_string()) continue;
    const Json* parameters = Find(*function, "parameters");
    schemas_.emplace(name->get<std::string>(),
                     parameters == nullptr ? Json::object() : *parameters);
  }
}

unsigned ToolTable::Types(std::string_view tool, std::string_view parameter) const {
  const auto schema = schemas_.find(tool);
  if (schema == schemas_.end()) return 0;
  const Json* properties = Find(schema->second, "properties");
  if (properties == nullptr || !properties->is_object()) return 0;
  const auto at = properties->find(std::string(parameter));
  return at == properties->end() ? 0 : SchemaTypes(*at, schema->second);
}

bool ToolTable::IsString(std::string_view tool, std::string_view parameter) const {
  return Types(tool, parameter) == json_type::kString;
}

std::string ToolTable::ToJson(std::string_view tool, std::string_view parameter,
                              std::string_view text) const {
  const unsigned types = Types(tool, parameter);
  if (types == json_type::kString) return StringAsJson(text);
  const std::string_view value = StripJsonSpace(text);
  const auto allowed = [&](const Json& is) {
    return !is.is_discarded() && !is.is_string() && (types == 0 || (types & TypeOf(is)) != 0);
  };
  if (const auto json = TryParseJsonText<Json>(value)) {
    if (allowed(*json)) return std::string(value);
    if (json->is_string() && types == 0) return std::string(value);
  }
  // Templates write True, None and {'k': [1]} where they print a value as Python does.
  const Json python = ParsePythonLiteral(value);
  if (allowed(python)) return python.dump(-1, ' ', false, Json::error_handler_t::replace);
  return StringAsJson(text);
}

}  // namespace larder::serving::answer
