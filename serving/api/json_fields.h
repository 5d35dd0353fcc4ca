// JsonFields: reads a client's JSON object field by field. A field that is absent or null keeps its default.
// A field of the wrong type or out of range throws a Refused (400) that names it. No state; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "serving/scheduling/generation_service.h"

namespace larder::serving::inline api {

class JsonFields {
 public:
  // `object` must outlive this. Throws Refused if it is not an object.
  explicit JsonFields(const nlohmann::json& object);

  const nlohmann::json* Find(const char* name) const;  // nullptr: absent or null
  bool Has(const char* name) const { return Find(name) != nullptr; }
  bool Bool(const char* name, bool value) const;
  // A whole number; 3.0 is one.
  int64_t Integer(const char* name, int64_t value, int64_t least, int64_t most) const;
  float Number(const char* name, float value) const;  // finite, and within float's range
  std::string String(const char* name, std::string value) const;

  [[noreturn]] static void Fail(const std::string& name, const nlohmann::json& is,
                                const std::string& expected);

 private:
  const nlohmann::json& object_;
};

// The value as a whole number in [least, most].
int64_t ToInteger(const nlohmann::json& value, const std::string& name, int64_t least, int64_t most);
float ToNumber(const nlohmann::json& value, const std::string& name);
// A short printable text of the value, for messages.
std::string Excerpt(const nlohmann::json& value);

}  // namespace larder::serving::api
