#include "serving/fields/json_fields.h"

#include <algorithm>
#include <cmath>

#include "base/json_text.h"

namespace larder::serving::inline fields {

Json ParseJson(std::string_view text) {
  try {
    return ParseJsonText<Json>(text);
  } catch (const JsonError& error) {
    throw Refused(400, "the request {}", error.what());
  }
}

std::string Excerpt(const Json& value) {
  constexpr size_t kMost = 60;
  if (value.is_array())
    return value.empty() ? "an empty array" : fmt::format("an array of {}", value.size());
  if (value.is_object()) return value.empty() ? "an empty object" : "an object";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

void JsonFields::Fail(const std::string& name, const Json& is, const std::string& expected) {
  throw Refused(400, "{} is {}: expected {}", name, Excerpt(is), expected).On(name);
}

JsonFields::JsonFields(const Json& object, std::string_view name) : object_(object) {
  if (!object.is_object())
    throw Refused(400, "{} is {}: expected a JSON object", name.empty() ? "the request" : name,
                  Excerpt(object))
        .On(std::string(name));
}

void JsonFields::Ignore(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) Know(name, Kind::kIgnored);
}

void JsonFields::Refuse(const char* name, const std::string& expected) const {
  Know(name, Kind::kRefused);
  const auto found = object_.find(name);
  if (found == object_.end() || found->is_null() || IsEmptyText(*found) ||
      (found->is_structured() && found->empty()))
    return;
  Fail(name, *found, expected);
}

// used: neither one of Ignore alone.
bool JsonFields::Knows(std::string_view name, bool used) const {
  return std::any_of(known_.begin(), known_.end(), [&](const Known& known) {
    return known.name == name && (!used || known.kind != Kind::kIgnored);
  });
}

size_t JsonFields::ignored() const {
  size_t count = inner_ignored_;
  for (const auto& [name, value] : object_.items())
    count += !value.is_null() && !Knows(name, /*used=*/false);
  return count;
}

std::vector<std::string> JsonFields::LeftOut(size_t most) const {
  std::vector<std::string> names;
  for (const bool known : {false, true}) {
    for (const auto& [name, value] : object_.items()) {
      if (names.size() == most) return names;
      if (!value.is_null() && !Knows(name, /*used=*/true) && Knows(name, false) == known)
        names.push_back(name);
    }
  }
  const size_t room = std::min(most - names.size(), inner_left_out_.size());
  names.insert(names.end(), inner_left_out_.begin(),
               inner_left_out_.begin() + static_cast<std::ptrdiff_t>(room));
  return names;
}

void JsonFields::Include(const std::string& name, const JsonFields& inner) const {
  constexpr size_t kMostInner = 64;
  FieldNames names;
  inner.AddNames(names);
  for (const auto& [from, to] :
       {std::pair{&names.used, &inner_.used}, std::pair{&names.ignored, &inner_.ignored},
        std::pair{&names.refused, &inner_.refused}}) {
    for (const std::string& one : *from) to->insert(name + "." + one);
  }
  for (const std::string& one : inner.LeftOut(kMostInner))
    inner_left_out_.push_back(name + "." + one);
  inner_ignored_ += inner.ignored();
}

void JsonFields::AddNames(FieldNames& to) const {
  for (const auto& [name, kind] : known_) {
    auto& names = kind == Kind::kUsed ? to.used : kind == Kind::kIgnored ? to.ignored : to.refused;
    names.emplace(name);
  }
  to.used.insert(inner_.used.begin(), inner_.used.end());
  to.ignored.insert(inner_.ignored.begin(), inner_.ignored.end());
  to.refused.insert(inner_.refused.begin(), inner_.refused.end());
  for (const std::string& name : to.used) {
    to.ignored.erase(name);
    to.refused.erase(name);
  }
  for (const std::string& name : to.refused) to.ignored.erase(name);
}

const Json* JsonFields::Find(const char* name) const {
  Know(name, Kind::kUsed);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::Bool(const char* name, bool value) const {
  const Json* field = Find(name);
  if (field == nullptr) return value;
  if (!field->is_boolean()) Fail(name, *field, "true or false");
  return field->get<bool>();
}

int64_t ToInteger(const Json& value, const std::string& name, int64_t least, int64_t most) {
  const auto fail = [&] {
    JsonFields::Fail(name, value, fmt::format("a whole number from {} to {}", least, most));
  };
  int64_t number = 0;
  if (value.is_number_unsigned()) {
    if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) fail();
    number = value.get<int64_t>();
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double real = value.get<double>();
    // 2^53: beyond it not every whole number has a double.
    if (!(std::abs(real) <= 0x1p53) || real != std::floor(real)) fail();
    number = static_cast<int64_t>(real);
  } else {
    fail();
  }
  if (number < least || number > most) fail();
  return number;
}

float ToNumber(const Json& value, const std::string& name) {
  if (!value.is_number()) JsonFields::Fail(name, value, "a number");
  const auto number = value.get<double>();
  if (!(std::abs(number) <= 3e38)) JsonFields::Fail(name, value, "a number that is not as large");
  return static_cast<float>(number);
}

int64_t JsonFields::Integer(const char* name, int64_t value, int64_t least, int64_t most) const {
  const Json* field = Find(name);
  return field == nullptr ? value : ToInteger(*field, name, least, most);
}

float JsonFields::Number(const char* name, float value) const {
  const Json* field = Find(name);
  return field == nullptr ? value : ToNumber(*field, name);
}

std::string JsonFields::String(const char* name, std::string value) const {
  const Json* field = Find(name);
  if (field == nullptr) return value;
  if (!field->is_string()) Fail(name, *field, "a string");
  return field->get<std::string>();
}

}  // namespace larder::serving::fields
