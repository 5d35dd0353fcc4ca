// The options of commands that answer requests, `serve` and `batch`, whose names and meanings are
// the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace larder::node::inline options {

struct AnswerOptions {
  std::vector<std::string> aliases, tags;  // aliases and tags of the model; the first alias is its
                                           // name
  std::string chat_template, pooling;
  int64_t max_tokens = -1;
  bool strict_model = false;
  bool strict_fields = false;
  bool special = false;
  std::string reasoning_format = "auto";  // none: thoughts stay in the text
  int64_t reasoning_budget = -1;          // tokens of an answer's thoughts; -1: not limited
  std::string reasoning_budget_message;
  std::string reasoning = "auto";  // on and auto: a model that can think does; off
  std::string template_kwargs;     // JSON text of an object; empty: none
  std::string effort = "default";  // effort of reasoning; default: none is given
  std::string tool_parser;         // AnswerFormatByName; empty: what the template asks for
};
void AddAnswerOptions(CLI::App& command, AnswerOptions& options, const char* group);

}  // namespace larder::node::options
