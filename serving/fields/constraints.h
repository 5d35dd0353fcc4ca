// The form that a request demands of its text, as a Grammar: OpenAI's response_format,
// llama-server's json_schema and grammar, vLLM's guided_* and structured_outputs. Compiled grammars
// are kept by their text, so that only the first request with a schema waits for compilation. Any
// thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "serving/fields/json_fields.h"
#include "serving/grammar/grammar.h"

namespace larder::serving::inline fields {

// What a text must match. No grammar: any text. The schema is null where it need not be JSON.
struct TextForm {
  Json schema;
  std::shared_ptr<const Grammar> grammar;
  std::string gbnf;  // without a schema: the same as an expression in GBNF
};
// Throws a Refused that names the field and says what is wrong with a schema or grammar, or that
// two fields demand one.
TextForm ReadConstraint(const JsonFields&);
// OpenAI's response_format, which other dialects have under another name, `name`. Throws like
// ReadConstraint.
TextForm ReadFormat(const Json& format, const std::string& name);

// The memory of the compiled grammars that are kept, with their texts.
size_t KeptGrammarBytes();

// The grammar kept for this text, or a new one.
std::shared_ptr<const Grammar> GrammarOfGbnf(const std::string& text);
std::shared_ptr<const Grammar> GrammarOfSchema(const nlohmann::ordered_json& schema);

}  // namespace larder::serving::fields
