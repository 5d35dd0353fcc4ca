// The one door through which text becomes JSON: a client's request and the texts in it, a model's
// answer, a file, another server's answer. What comes out is nested and has fields within bounds,
// so that what walks the tree (copies, comparisons and dumps of nlohmann's recurse) needs none of
// its own, and reading takes time linear in the text, however many fields an object has.
// scripts/check_json.py sees to it that nothing else parses.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace larder {

struct JsonLimits {
  size_t depth = 64;  // arrays and objects in each other; schemas of tools need some 20
  // Of one object: a linear search finds a field of an ordered one. Only logit_bias has more than
  // some 50.
  size_t fields = 4096;
};

// What is wrong, to stand behind the name of the text: "is not JSON: parse error at line 1, column
// 2: ...", "is nested more than 64 deep".
class JsonError : public Error {
  using Error::Error;
};

// Half of a surrogate pair that is escaped alone, as models and clients write it, becomes U+FFFD.
// Of two fields with one name the second counts, in the first one's place. Spends a Work's steps.
// Throws JsonError. For nlohmann::json and nlohmann::ordered_json.
template <typename Json>
Json ParseJsonText(std::string_view text, const JsonLimits& = {});

// nullopt instead of a JsonError.
template <typename Json>
std::optional<Json> TryParseJsonText(std::string_view text, const JsonLimits& = {});

// The text that the outermost object's field has, from the beginning of a JSON text that may not
// be complete; nullopt: no such field is in it.
std::optional<std::string> FindTextField(std::string_view beginning, std::string_view field);

}  // namespace larder
