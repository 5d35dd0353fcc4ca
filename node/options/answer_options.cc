#include "node/options/answer_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "model/chat/chat_template.h"

namespace larder::node::inline options {

void AddAnswerOptions(CLI::App& command, AnswerOptions& options, const char* group) {
  command
      .add_option(
          "--policy", options.policy,
          "prompts against answers: mixed (both in each step), decode_first, phases or auto, which is "
          "mixed (default: auto)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "mixed", "decode_first", "phases"}).description(""))
      ->group(group);
  command
      .add_option("-n,--predict,--n-predict", options.max_tokens,
                  "tokens to generate if a request sets no limit; -1: until the text ends (default: -1)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40).description(""))
      ->group(group);
  command
      .add_option("-a,--alias", options.alias,
                  "the model's name in requests and answers (default: the file's)")
      ->type_name("NAME")
      ->group(group);
  command
      .add_option(
          "--chat-template", options.chat_template,
          fmt::format("a Jinja file, or one of {} (default: the model's)", model::BuiltInTemplateList()))
      ->type_name("NAME|FILE")
      ->group(group);
  command.add_flag("--jinja")
      ->description("templates are always Jinja: accepted, changes nothing")
      ->group(group);
}

}  // namespace larder::node::options
