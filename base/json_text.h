// The only place where text is parsed as JSON: a client's request and the texts in it, a model's
// answer, a file, another server's answer. Nesting and fields are bounded here, so that code which
// walks the result (nlohmann's copies, comparisons and dumps recurse) needs no bounds of its own.
// Reading takes time linear in the text, however many fields an object has. scripts/check_json.py
// checks that nothing else parses.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace larder {

struct JsonLimits {
  size_t depth = 64;  // levels of arrays and objects; schemas of tools need about 20
  // In one object, since a field of an ordered one is found by linear search. Only logit_bias has
  // more than about 50.
  size_t fields = 4096;
};

// What is wrong, worded to follow the name of the text: "is not JSON: parse error at line 1, column
// 2: ...", "is nested more than 64 deep".
class JsonError : public Error {
  using Error::Error;
};

// Parses a text. An escaped half of a surrogate pair, which models and clients write, becomes
// U+FFFD. If a name occurs twice, the second value counts, in the first one's place. Spends steps
// of the Work. Throws JsonError. Json: nlohmann::json or nlohmann::ordered_json.
template <typename Json>
Json ParseJsonText(std::string_view text, const JsonLimits& = {});

// The same, but nullopt instead of a JsonError.
template <typename Json>
std::optional<Json> TryParseJsonText(std::string_view text, const JsonLimits& = {});

// For the catch (...) around the reading of a JSON file: throws what was caught as an Error that
// names the file and says what is wrong with it ("damaged"). An Error that is no JsonError stays as
// it is.
[[noreturn]] void RethrowOfFile(const std::string& path, std::string_view wrong);

// The text of a field of the outermost object, found in the beginning of a JSON text, which need
// not be complete. nullopt if the field is not there.
std::optional<std::string> FindTextField(std::string_view beginning, std::string_view field);

}  // namespace larder
