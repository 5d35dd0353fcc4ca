#include "serving/grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/work.h"

namespace larder::serving::inline grammar {
namespace {

constexpr size_t kMostWays = 256;  // products of anyOf times anyOf

bool Among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Json AsArray(const Json& value) { return value.is_array() ? value : Json::array({value}); }

bool HasValue(const Json& array, const Json& value) {
  SpendWork(array.size());
  return std::any_of(array.begin(), array.end(), [&](const Json& one) { return one == value; });
}

// The values of both.
Json Intersected(const Json& a, const Json& b) {
  // Each comparison walks no more than the smaller of its two values.
  SpendWork(std::min(StepsOf(a) * b.size(), StepsOf(b) * a.size()));
  Json both = Json::array();
  for (const Json& one : a) {
    if (std::find(b.begin(), b.end(), one) != b.end()) both.push_back(one);
  }
  return both;
}

Json MergeTypes(const Json& a, const Json& b) {
  const Json left = AsArray(a), right = AsArray(b);
  SpendWork(3 * left.size() * right.size());
  Json both = Json::array();
  for (const Json& type : left) {
    if (HasValue(right, type) || (type == "integer" && HasValue(right, "number")))
      both.push_back(type);
    if (type == "number" && HasValue(right, "integer") && !HasValue(left, "integer"))
      both.push_back("integer");
  }
  return both;
}

// Both are one list of schemas, however often it is extended: nothing gets nested deeper.
Json BothOf(const Json& a, const Json& b) {
  SpendWork(StepsOf(a) + StepsOf(b));
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  Json all = Json::array();
  for (const Json* one : {&a, &b}) {
    const bool is_list = one->is_object() && one->size() == 1 && one->contains("allOf") &&
                         (*one)["allOf"].is_array();
    if (is_list) {
      for (const Json& part : (*one)["allOf"]) all.push_back(part);
    } else {
      all.push_back(*one);
    }
  }
  return Json{{"allOf", std::move(all)}};
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
  SpendWork(left.size() * right.size() / 2);  // each name is looked for among the others
  Json merged = Json::object();
  Json::object_t::Container& fields = merged.get_ref<Json::object_t&>();  // names differ: none is
                                                                          // looked for
  for (const auto& [name, schema] : left.items()) {
    const auto other = right.find(name);
    fields.emplace_back(name, BothOf(schema, other == right.end() ? Additional(b) : *other));
  }
  for (const auto& [name, schema] : right.items()) {
    if (!left.contains(name)) fields.emplace_back(name, BothOf(schema, Additional(a)));
  }
  if (!merged.empty()) out["properties"] = std::move(merged);
  if (a.contains("additionalProperties") || b.contains("additionalProperties"))
    out["additionalProperties"] = BothOf(Additional(a), Additional(b));
}

Json Product(const Json& left, const Json& right, const std::string& path) {
  if (left.size() * right.size() > kMostWays)
    FailAt(path, fmt::format("anyOf combined with anyOf has more than {} alternatives", kMostWays));
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

uint64_t StepsOf(const Json& json, size_t depth) {
  if (json.is_string()) return StepsOfText(json.get_ref<const std::string&>().size());
  if (!json.is_structured()) return 1;
  if (depth == 0) throw Error("it is nested more than {} deep", kMostMergedDepth);
  uint64_t steps = 1;
  if (json.is_object()) {
    for (const auto& [name, value] : json.get_ref<const Json::object_t&>())
      steps += StepsOfText(name.size()) + StepsOf(value, depth - 1);
  } else {
    for (const Json& value : json) steps += StepsOf(value, depth - 1);
  }
  return steps;
}

Json Copied(const Json& schema, std::initializer_list<std::string_view> without) {
  if (!schema.is_object()) {
    SpendWork(StepsOf(schema));
    return schema;
  }
  Json copy = Json::object();
  Json::object_t::Container& fields = copy.get_ref<Json::object_t&>();
  for (const auto& [name, value] : schema.get_ref<const Json::object_t&>()) {
    SpendWork(1);
    if (IsAnnotation(name) || Among(name, without)) continue;
    const uint64_t steps = StepsOf(value);
    SpendWork(2 * steps);
    HoldWork(steps * sizeof(Json));
    fields.emplace_back(name, value);
  }
  return copy;
}

Json MergeSchemas(const Json& a, const Json& b, const std::string& path) {
  if (a == true) return Copied(b);
  if (b == true) return Copied(a);
  if (a == false || b == false) return false;
  if (!a.is_object() || !b.is_object()) FailAt(path, "expected an object, true or false");
  SpendWork(b.size() * (1 + a.size()) / 4);  // each keyword is looked for among the others
  Json out = Copied(a);
  for (const auto& [key, value] : b.items()) {
    SpendWork(1);
    if (IsAnnotation(key)) continue;
    SpendWork(StepsOf(value));
    const auto place = out.find(key);
    if (Among(key, {"properties", "additionalProperties"})) continue;  // below, together
    if (place == out.end()) {
      out[key] = value;
    } else if (*place == value) {
      continue;
    } else if (key == "type") {
      *place = MergeTypes(*place, value);
    } else if (key == "required") {
      if (!place->is_array() || !value.is_array()) FailAt(path, key + ": expected an array");
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
      if (!place->is_array() || !value.is_array()) FailAt(path, key + ": expected an array");
      *place = Intersected(*place, value);
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
      FailAt(path, "two schemas that must both hold differ in " + key + ": not supported");
    }
  }
  if (b.contains("properties") || b.contains("additionalProperties")) MergeProperties(out, a, b);
  return out;
}

}  // namespace larder::serving::grammar
