// MakeToolGrammar: what a model may write when it has to call a tool, as GBNF with %json atoms (see
// serving/grammar). MakeToolInstructions and MakeCallText: tell a model about tools and its earlier
// calls where its template does not. Any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serving/answer/answer_format.h"

namespace larder::serving::inline answer {

struct ToolChoice {
  enum class Kind : uint8_t {
    kAuto,      // free text; the grammar holds from a call's marker on, or says that the text is no
                // call
    kRequired,  // at least one call
    kNamed,     // calls of the tool `name` only
  };
  Kind kind = Kind::kAuto;
  std::string name;
};

struct ToolGrammar {
  std::string gbnf;
  std::vector<std::string> triggers;  // not empty: it holds behind the first of these texts
};

struct ToolGrammarOptions {
  bool parallel = true;  // more than one call in an answer
  // Of kRequired and kNamed, and of a text of a schema:
  bool starts_in_reasoning = false;  // it holds behind the end of the thought
  bool may_think = false;            // a thought may come first
  // kRequired, kNamed: instead of calls the answer may be a text of this JSON schema; null: it may
  // not.
  nlohmann::ordered_json schema;
};

// tools: in OpenAI's form. Throws Error if there are none, or none has the chosen name.
ToolGrammar MakeToolGrammar(AnswerFormat, const nlohmann::ordered_json& tools, const ToolChoice&,
                            const ToolGrammarOptions& = {});

// What a model may write whose answer has to match `answer`, an expression in GBNF: that text,
// behind the thought if there may be one. gpt-oss always may think; its text is a sequence of
// messages, the answer the one in the final channel. Of the options: starts_in_reasoning,
// may_think.
ToolGrammar MakeAnswerGrammar(AnswerFormat, const std::string& answer, const ToolGrammarOptions&);

// The text that ends a thought which the prompt has begun.
std::string EndOfThought(AnswerFormat);

// The format in which a model can be told to call, where its template shows no tools: its own, if
// that is one JSON value in markers, or the generic one.
AnswerFormat ToldFormat(AnswerFormat);

// A text for the system message that lists the tools and says how to call them, in the told format.
std::string MakeToolInstructions(AnswerFormat, const nlohmann::ordered_json& tools);

// A call as the model would have written it in that format, for templates that leave earlier calls
// out. `arguments`: JSON text.
std::string MakeCallText(AnswerFormat, const std::string& name, const std::string& arguments);

}  // namespace larder::serving::answer
