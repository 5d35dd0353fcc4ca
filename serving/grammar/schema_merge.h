// Two schemas that both must hold, as one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace larder::serving::inline grammar {

using Json = nlohmann::ordered_json;

// Why a schema is refused: where, and what.
[[noreturn]] void FailAt(const std::string& path, const std::string& what);

// Keywords that say nothing about which texts are valid.
bool IsAnnotation(const std::string& keyword);

// Throws Error with `path` where no single schema has the meaning of both.
Json MergeSchemas(const Json& a, const Json& b, const std::string& path);

}  // namespace larder::serving::grammar
