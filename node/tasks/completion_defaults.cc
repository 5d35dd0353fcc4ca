#include "node/tasks/completion_defaults.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <utility>

#include "model/chat/chat.h"
#include "model/config/config.h"

namespace larder::node::inline tasks {
namespace {

std::optional<model::ChatFormat> ChooseFormat(const std::string& name, const model::Tokenizer& tokenizer) {
  if (name.empty()) return model::DetectChatFormat(tokenizer.chat_template());
  if (const auto format = model::ChatFormatByName(name)) return format;
  throw CLI::ValidationError("--chat-template",
                             fmt::format("'{}' is not known; see larder serve --help", name));
}

}  // namespace

serving::CompletionDefaults DefaultsOf(const model::GgufFile& file,
                                       std::shared_ptr<const model::Tokenizer> tokenizer,
                                       const SamplingOptions& sampling, const AnswerOptions& answers) {
  const model::ModelConfig config = model::ReadModelConfig(file);
  const std::string stem = file.stem();
  serving::CompletionDefaults defaults;
  defaults.chat_format = ChooseFormat(answers.chat_template, *tokenizer);
  defaults.sampling = ResolveSampling(sampling, *tokenizer, config.vocab);
  if (sampling.seed != "-1") defaults.seed = defaults.sampling.seed;
  defaults.max_tokens = answers.max_tokens;
  defaults.vocab = config.vocab;
  defaults.longest_token_bytes = serving::LongestTokenBytes(*tokenizer);
  defaults.model = answers.alias.empty() ? stem : answers.alias;
  defaults.aliases = {stem, config.name, std::filesystem::path(file.path()).filename().string(), file.path()};
  defaults.strict_model = answers.strict_model;
  defaults.tokenizer = std::move(tokenizer);
  return defaults;
}

}  // namespace larder::node::tasks
