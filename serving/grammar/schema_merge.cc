#include "serving/grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace larder::serving::inline grammar {
namespace {

constexpr size_t kMostWays = 256;  // of anyOf times anyOf

bool Among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Json AsArray(const Json& value) { return value.is_array() ? value : Json::array({value}); }

bool HasValue(const Json& array, const Json& value) {
  return std::any_of(array.begin(), array.end(), [&](const Json& one) { return one == value; });
}

Json MergeTypes(const Json& a, const Json& b) {
  const Json left = AsArray(a), right = AsArray(b);
  Json both = Json::array();
  for (const Json& type : left) {
    if (HasValue(right, type) || (type == "integer" && HasValue(right, "number")))
      both.push_back(type);
    if (type == "number" && HasValue(right, "integer") && !HasValue(left, "integer"))
      both.push_back("integer");
  }
  return both;
}

Json BothOf(const Json& a, const Json& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return Json{{"allOf", Json::array({a, b})}};
}

// What `schema` says about a property that it does not list.
Json Additional(const Json& schema) {
  const auto found = schema.find("additionalProperties");
  return found == schema.end() ? Json(true) : *found;
}

void MergeProperties(Json& out, const Json& a, const Json& b) {
  const Json none = Json::object();
  const auto properties = [&](const Json& schema) -> const Json& {
    const auto found = schema.find("properties");
    return found == schema.end() ? none : *found;
  };
  const Json &left = properties(a), &right = properties(b);
  Json merged = Json::object();
  for (const auto& [name, schema] : left.items()) {
    const auto other = right.find(name);
    merged[name] = BothOf(schema, other == right.end() ? Additional(b) : *other);
  }
  for (const auto& [name, schema] : right.items()) {
    if (!left.contains(name)) merged[name] = BothOf(schema, Additional(a));
  }
  if (!merged.empty()) out["properties"] = merged;
  if (a.contains("additionalProperties") || b.contains("additionalProperties"))
    out["additionalProperties"] = BothOf(Additional(a), Additional(b));
}

Json Product(const Json& left, const Json& right, const std::string& path) {
  if (left.size() * right.size() > kMostWays) FailAt(path, "anyOf times anyOf has too many ways");
  Json ways = Json::array();
  for (const Json& a : left) {
    for (const Json& b : right) ways.push_back(BothOf(a, b));
  }
  return ways;
}

}  // namespace

void FailAt(const std::string& path, const std::string& what) {
  throw Error("schema at {}: {}", path.empty() ? "/" : path.substr(0, 200), what);
}

bool IsAnnotation(const std::string& keyword) {
  return Among(keyword, {"title",
                         "description",
                         "default",
                         "examples",
                         "example",
                         "$schema",
                         "$id",
                         "id",
                         "$comment",
                         "deprecated",
                         "readOnly",
                         "writeOnly",
                         "$defs",
                         "definitions",
                         "$anchor",
                         "$vocabulary",
                         "contentMediaType",
                         "contentEncoding",
                         "contentSchema",
                         "externalDocs",
                         "xml"});
}

Json MergeSchemas(const Json& a, const Json& b, const std::string& path) {
  if (a == true) return b;
  if (b == true) return a;
  if (a == false || b == false) return false;
  if (!a.is_object() || !b.is_object()) FailAt(path, "expected an object, true or false");
  Json out = a;
  for (const auto& [key, value] : b.items()) {
    if (IsAnnotation(key)) continue;
    const auto place = out.find(key);
    if (Among(key, {"properties", "additionalProperties"})) continue;  // below, together
    if (place == out.end()) {
      out[key] = value;
    } else if (*place == value) {
      continue;
    } else if (key == "type") {
      *place = MergeTypes(*place, value);
    } else if (key == "required") {
      for (const Json& name : value) {
        if (!HasValue(*place, name)) place->push_back(name);
      }
    } else if (Among(key,
                     {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})) {
      if (!place->is_number() || !value.is_number()) FailAt(path, key + ": expected a number");
      if (*place < value) *place = value;
    } else if (Among(key,
                     {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})) {
      if (!place->is_number() || !value.is_number()) FailAt(path, key + ": expected a number");
      if (value < *place) *place = value;
    } else if (key == "enum") {
      Json both = Json::array();
      for (const Json& one : *place) {
        if (HasValue(value, one)) both.push_back(one);
      }
      *place = both;
    } else if (key == "const") {
      return false;  // two different ones
    } else if (key == "items" && !place->is_array() && !value.is_array()) {
      *place = BothOf(*place, value);
    } else if (Among(key, {"anyOf", "oneOf"})) {
      *place = Product(*place, value, path);
    } else if (key == "allOf") {
      for (const Json& one : value) place->push_back(one);
    } else if (key == "nullable") {
      *place = *place == true && value == true;
    } else {
      FailAt(path, key + " differs in two schemas that both must hold: not supported");
    }
  }
  if (b.contains("properties") || b.contains("additionalProperties")) MergeProperties(out, a, b);
  return out;
}

}  // namespace larder::serving::grammar
