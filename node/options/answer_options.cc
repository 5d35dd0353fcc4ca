#include "node/options/answer_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "model/chat/chat_template.h"
#include "node/options/count_option.h"
#include "serving/answer/answer_format.h"

namespace larder::node::inline options {
namespace {

std::string AnswerFormats() {
  std::string names;
  for (const std::string_view name : serving::AnswerFormatNames())
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

std::string NotAnObject(const std::string& text) {
  const auto object = TryParseJsonText<nlohmann::json>(text);
  return object && object->is_object() ? "" : fmt::format("'{}' is not a JSON object", text);
}

}  // namespace

void AddAnswerOptions(CLI::App& command, AnswerOptions& options, const char* group) {
  command
      .add_option(
          "-n,--predict,--n-predict", options.max_tokens,
          "tokens to generate if a request sets no limit; -1: until the text ends (default: -1)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40).description(""))
      ->group(group);
  command
      .add_option(
          "-a,--alias", options.aliases,
          "the model's name in requests and answers; further names, separated by commas, are "
          "accepted in requests (default: the file's)")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group(group);
  command
      .add_option("--tags", options.tags, "tags of the model in /v1/models, separated by commas")
      ->delimiter(',')
      ->type_name("WORD,...")
      ->group(group);
  command
      .add_flag("--strict-model", options.strict_model,
                "refuse requests that name another model (default: any name is accepted)")
      ->group(group);
  command
      .add_flag(
          "--strict-fields", options.strict_fields,
          "refuse requests with fields that have no effect here, as a request with \"strict\": "
          "true asks for itself (default: such fields are ignored)")
      ->group(group);
  command
      .add_option(
          "--pooling", options.pooling,
          "how the tokens of a text become one embedding: mean, cls, last; none or rank: no "
          "embeddings (default: what the model's file says)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"none", "mean", "cls", "last", "rank"}).description(""))
      ->group(group);
  command
      .add_option("--reasoning", options.reasoning,
                  "whether a model that can think does so if a request does not say: on, off or "
                  "auto (default: auto, as on)")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->group(group);
  command
      .add_option("--reasoning-format", options.reasoning_format,
                  "if a request does not say: auto and deepseek separate thoughts from the answer, "
                  "none leaves them in its text (default: auto)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"none", "deepseek", "auto"}).description(""))
      ->group(group);
  command
      .add_option("--reasoning-budget", options.reasoning_budget,
                  "most tokens of an answer's thoughts if a request does not say; 0: none, -1: any "
                  "number (default: -1)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40).description(""))
      ->group(group);
  command
      .add_option(
          "--reasoning-budget-message", options.reasoning_budget_message,
          "what a model is told when the tokens of its thought are spent (default: nothing)")
      ->type_name("TEXT")
      ->group(group);
  command
      .add_flag("--special", options.special,
                "show control tokens in answers (default: if a request asks for them)")
      ->group(group);
  command
      .add_option("--tool-parser", options.tool_parser,
                  "how the model writes thoughts and calls of tools: " + AnswerFormats() +
                      " (default: what its template asks for)")
      ->type_name("NAME")
      ->group(group);
  command
      .add_option(
          "--chat-template", options.chat_template,
          fmt::format("a Jinja file, a template itself, or one of {} (default: the model's, or "
                      "chatml if it has none)",
                      model::BuiltInTemplateList()))
      ->type_name("NAME|FILE|TEXT")
      ->group(group);
  command
      .add_option("--chat-template-kwargs", options.template_kwargs,
                  "variables of the template, unless a request sets them, as a JSON object")
      ->type_name("JSON")
      ->check(NotAnObject, "")
      ->group(group);
  command
      .add_option("--reasoning-effort", options.effort,
                  "how much a model thinks if a request does not say: none, minimal, low, "
                  "medium, high, xhigh or max (default: the template's)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"default", "none", "minimal", "low", "medium", "high", "xhigh", "max"})
                  .description(""))
      ->group(group);
  command.add_flag("--jinja")
      ->description("templates are always Jinja: accepted, changes nothing")
      ->group(group);
}

}  // namespace larder::node::options
