// JsonFields: reads a client's JSON object field by field. A field that is absent or null keeps its
// default. A field of the wrong type or out of range throws a Refused (400) that names it. Fields
// that nothing has asked for are ignored and counted, for a metric. The names that readers ask for
// are collected; the lists in docs/api.md are made from them. No state; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serving/generation/generation_service.h"

namespace larder::serving::inline fields {

// Clients' JSON keeps the order of its fields: schemas and templates show it to the model.
using Json = nlohmann::ordered_json;

// The string "", which clients send for a field that they leave out.
inline bool IsEmptyText(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

// The names that readers of an object know.
struct FieldNames {
  std::set<std::string> used, ignored, refused;
};

class JsonFields {
 public:
  // `object` must outlive this. `name`: what it is, for messages. Throws Refused if it is not an
  // object.
  explicit JsonFields(const Json& object, std::string_view name = "");
  explicit JsonFields(Json&&, std::string_view = "") = delete;
  explicit JsonFields(const nlohmann::json&, std::string_view = "") = delete;

  const Json* Find(const char* name) const;  // nullptr: absent or null
  bool Has(const char* name) const { return Find(name) != nullptr; }
  bool Bool(const char* name, bool value) const;
  // A whole number; 3.0 is one.
  int64_t Integer(const char* name, int64_t value, int64_t least, int64_t most) const;
  float Number(const char* name, float value) const;  // finite, and within float's range
  std::string String(const char* name, std::string value) const;

  // Names known fields that change nothing.
  void Ignore(std::initializer_list<std::string_view> names) const;
  // A field that must be null, empty or absent. Throws Refused.
  void Refuse(const char* name, const std::string& expected) const;
  // The number of fields, other than null ones, that were neither asked for nor named in Ignore.
  size_t ignored() const;
  // The names of these fields, then of present ones named in Ignore; at most `most`.
  std::vector<std::string> LeftOut(size_t most) const;
  // `inner` is the field of that name: its fields count as this object's, as "name.field".
  void Include(const std::string& name, const JsonFields& inner) const;
  // Adds the names known so far. A name that is both asked for and ignored counts as used.
  void AddNames(FieldNames&) const;

  [[noreturn]] static void Fail(const std::string& name, const Json& is,
                                const std::string& expected);

 private:
  enum class Kind : uint8_t { kUsed, kIgnored, kRefused };
  struct Known {
    std::string_view name;
    Kind kind;
  };
  void Know(std::string_view name, Kind kind) const { known_.push_back({name, kind}); }
  bool Knows(std::string_view name, bool used) const;
  const Json& object_;
  mutable std::vector<Known> known_;
  mutable FieldNames inner_;
  mutable std::vector<std::string> inner_left_out_;
  mutable size_t inner_ignored_ = 0;
};

// The value as a whole number in [least, most].
int64_t ToInteger(const Json& value, const std::string& name, int64_t least, int64_t most);
float ToNumber(const Json& value, const std::string& name);
// A short printable text of the value, for messages.
std::string Excerpt(const Json& value);

// Parses a client's JSON (base/json_text.h). Throws Refused (400) if it is not JSON ("the request
// is not JSON: ...") or not UTF-8, or if it has deeper nesting or more fields in an object than any
// request needs.
Json ParseJson(std::string_view text);

}  // namespace larder::serving::fields
