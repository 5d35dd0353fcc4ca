// JSON schemas as grammars: the JSON texts that are valid by the schema, compact or with a little
// white space, properties in the schema's order. An unsupported keyword that would narrow the texts
// is refused with its path in the schema; annotations are ignored. The schema comes from a client.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "serving/grammar/syntax.h"

namespace larder::serving::inline grammar {

// Throws Error if the text is not JSON or is nested too deep for a schema.
nlohmann::ordered_json ParseSchemaText(std::string_view text);

// The expression of one JSON text. Throws Error: "schema at /properties/age: multipleOf is not
// supported". wants_text: also throws if no text matches, with the path of the part that is the
// reason.
ExprId AddJsonSchema(Syntax&, const nlohmann::ordered_json& schema, bool wants_text = false);

}  // namespace larder::serving::grammar
