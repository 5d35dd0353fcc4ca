#include "node/tasks/completion_defaults.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "kernels/formats/numerics.h"
#include "model/config/config.h"
#include "model/config/pooling.h"
#include "model/config/split.h"

namespace larder::node::inline tasks {
namespace {

serving::AnswerFormat ChooseAnswers(const std::string& name,
                                    const serving::CompletionDefaults& defaults) {
  if (name.empty()) return serving::DetectAnswerFormat(defaults.chat_template->source());
  if (const auto format = serving::AnswerFormatByName(name)) return *format;
  throw CLI::ValidationError("--tool-parser",
                             fmt::format("'{}' is not known; see larder serve --help", name));
}

}  // namespace

// A template of the file that Larder cannot parse must not keep the model from being served.
std::shared_ptr<const model::ChatTemplate> ChooseTemplate(const std::string& name,
                                                          const std::string& file,
                                                          const model::Tokenizer& tokenizer) {
  if (!name.empty()) return model::ChatTemplate::Named(name, tokenizer);
  try {
    if (auto of_model = model::ChatTemplate::OfModel(tokenizer, file)) return of_model;
    spdlog::warn(
        "{} has no chat template: ChatML is used, which the model may not know; --chat-template "
        "names another",
        file);
  } catch (const Error& error) {
    spdlog::warn("{}; ChatML is used instead; --chat-template names another", error.what());
  }
  return model::ChatTemplate::Named("chatml", tokenizer);
}

serving::CompletionDefaults DefaultsOf(const model::GgufFile& file,
                                       std::shared_ptr<const model::Tokenizer> tokenizer,
                                       const SamplingOptions& sampling,
                                       const AnswerOptions& answers) {
  const model::ModelConfig config = model::ReadModelConfig(file);
  const std::string stem = file.stem();
  serving::CompletionDefaults defaults;
  defaults.chat_template = ChooseTemplate(
      answers.chat_template, std::filesystem::path(file.path()).filename().string(), *tokenizer);
  defaults.answer_format = ChooseAnswers(answers.tool_parser, defaults);
  defaults.sampling = ResolveSampling(sampling, *tokenizer, config.vocab);
  if (sampling.seed != "-1") defaults.seed = defaults.sampling.seed;
  defaults.max_tokens = answers.max_tokens;
  defaults.vocab = config.vocab;
  defaults.model_context = config.trained_context;
  defaults.longest_token_bytes = serving::LongestTokenBytes(*tokenizer);
  defaults.model = answers.aliases.empty() ? stem : answers.aliases[0];
  defaults.said_aliases = answers.aliases;
  defaults.tags = answers.tags;
  defaults.aliases = answers.aliases;
  for (const std::string& name :
       {stem, config.name, std::filesystem::path(file.path()).filename().string(), file.path()})
    defaults.aliases.push_back(name);
  defaults.architecture = config.architecture_name;
  defaults.parameters = config.parameters();
  defaults.file_bytes = file.file_bytes();
  defaults.strict_model = answers.strict_model;
  defaults.strict_fields = answers.strict_fields;
  defaults.reasoning = answers.reasoning != "off";
  defaults.special = answers.special;
  defaults.split_reasoning = answers.reasoning_format != "none";
  defaults.thought_tokens = answers.reasoning_budget;
  defaults.thought_message = answers.reasoning_budget_message;
  if (answers.effort != "default") defaults.effort = answers.effort;
  if (!answers.template_kwargs.empty())
    defaults.kwargs = serving::ParseJson(answers.template_kwargs);
  defaults.dim = config.dim;
  defaults.rank_head = model::ReadRankHead(file, config.dim);
  defaults.pooling =
      answers.pooling.empty() ? model::ReadPooling(file) : *model::PoolingByName(answers.pooling);
  defaults.rank_template =
      std::string(file.FindString("tokenizer.chat_template.rerank").value_or(""));
  defaults.tokenizer = std::move(tokenizer);
  return defaults;
}

serving::ServedModel ServedModelOf(const serving::CompletionDefaults& defaults,
                                   const AnswerOptions& answers, size_t slots) {
  return {.name = defaults.model,
          .fingerprint = defaults.fingerprint,
          .engine =
              fmt::format("larder {}, arithmetic {}", LARDER_VERSION, kernels::kArithmeticVersion),
          .chat_template = answers.chat_template.empty() ? "auto" : answers.chat_template,
          .tool_parser = std::string(serving::AnswerFormatName(defaults.answer_format)),
          .context = defaults.context,
          .vocab = defaults.vocab,
          .dim = defaults.dim,
          .slots = slots,
          .pooling = std::string(model::PoolingName(defaults.pooling)),
          .biased = !defaults.sampling.logit_bias.empty()};
}

std::string RequestDefaultsText(const SamplingOptions& sampling, const AnswerOptions& answers,
                                const serving::ServedModel& served) {
  const serving::SamplingParams& p = sampling.params;
  std::string bias;
  for (const std::string& one : sampling.logit_bias) bias += " " + one;
  return fmt::format(
             "temp {} top-k {} top-p {} min-p {} repeat {} last {} presence {} frequency {} bias{} "
             "ignore-eos {} n {} context {} chat {} tools {} pooling {}{}{}",
             p.temperature, p.top_k, p.top_p, p.min_p, p.repeat_penalty, p.repeat_last_n,
             p.presence_penalty, p.frequency_penalty, bias, sampling.ignore_eos, answers.max_tokens,
             served.context, served.chat_template, served.tool_parser, served.pooling,
             SamplersText(sampling), answers.reasoning == "off" ? " reasoning off" : "") +
         (answers.special ? " special" : "") +
         (answers.reasoning_format == "none" ? " thoughts in text" : "") +
         (answers.reasoning_budget >= 0 ? fmt::format(" thoughts {} {}", answers.reasoning_budget,
                                                      answers.reasoning_budget_message)
                                        : "") +
         (answers.effort == "default" ? "" : " effort " + answers.effort) +
         (answers.template_kwargs.empty() ? "" : " kwargs " + answers.template_kwargs);
}

}  // namespace larder::node::tasks
