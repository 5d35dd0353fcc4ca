// Merges two schemas that must both hold into one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace larder::serving::inline grammar {

using Json = nlohmann::ordered_json;

// Why a schema is refused: where, and what.
[[noreturn]] void FailAt(const std::string& path, const std::string& what);

// Keywords that say nothing about which texts are valid.
bool IsAnnotation(const std::string& keyword);

// No schema's JSON is nested as deep as this, not even a merged one: parsing allows 64 levels
// (base/json_text.h), and merging adds two for each.
inline constexpr size_t kMostMergedDepth = 256;
// The steps of one walk over the value: a copy, a comparison or a dump. Throws Error beyond the
// depth.
uint64_t StepsOf(const Json&, size_t depth = kMostMergedDepth);
// A copy of the schema without annotations and without these keywords. Spends its Work.
Json Copied(const Json& schema, std::initializer_list<std::string_view> without = {});

// The merged schema, without annotations. Throws Error with `path` if no single schema means both.
Json MergeSchemas(const Json& a, const Json& b, const std::string& path);

}  // namespace larder::serving::grammar
