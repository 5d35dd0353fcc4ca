// Two schemas that both must hold, as one.
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

// A schema's JSON is nested less deep than this, merged ones included: the door lets in 64
// (base/json_text.h), and merging adds two for each.
inline constexpr size_t kMostMergedDepth = 256;
// The work of one walk over it: of a copy, a comparison, a dump. Throws Error beyond the depth.
uint64_t StepsOf(const Json&, size_t depth = kMostMergedDepth);
// A copy of the schema, without annotations and these keywords; its work is spent.
Json Copied(const Json& schema, std::initializer_list<std::string_view> without = {});

// Throws Error with `path` where no single schema has the meaning of both. Without annotations.
Json MergeSchemas(const Json& a, const Json& b, const std::string& path);

}  // namespace larder::serving::grammar
