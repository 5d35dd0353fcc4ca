// `larder run`: continues a prompt, or chats.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "node/commands/command.h"
#include "node/loading/load.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"
#include "node/options/sampling_options.h"
#include "node/options/terminal.h"
#include "node/service/signals.h"
#include "node/tasks/chat_session.h"
#include "node/tasks/completion_defaults.h"
#include "node/tasks/generate.h"
#include "serving/grammar/grammar.h"
#include "serving/grammar/json_schema.h"

namespace larder::node::inline commands {
namespace {

struct RunOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string prompt, prompt_file, system, chat_template;
  std::string grammar_file, schema_file, schema;
  std::vector<std::string> stops;
  int64_t max_tokens = -1;
  bool chat = false;
  bool think = true;
  bool show_prompt = true;
  bool verbose_prompt = false;
  bool escapes = true;
  bool special = false;
};

void Describe(CLI::App& command, RunOptions& o) {
  const char* text = "Text";
  command.add_option("-p,--prompt", o.prompt, "the text to continue; in a chat, the first message")
      ->type_name("TEXT")
      ->group(text);
  command.add_option("-f,--file", o.prompt_file, "read the prompt from a file (-: standard input)")
      ->type_name("FILE")
      ->group(text);
  command
      .add_option(
          "-n,--predict,--n-predict", o.max_tokens,
          "tokens to generate; -1: until the text ends or the context is full (default: -1)")
      ->type_name("N")
      ->check(WholeNumberFrom(-2, int64_t{1} << 40), "")
      ->group(text);
  command.add_option("--stop,-r,--reverse-prompt", o.stops, "stop before this text; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(text);
  command
      .add_flag(
          "-e,--escape,!--no-escape", o.escapes,
          "interpret escapes such as \\n, \\t and \\\" in -p, --system and --stop (default: on)")
      ->group(text);
  command.add_flag("!--no-display-prompt", o.show_prompt, "print only the generated text")
      ->group(text);
  command.add_flag("--verbose-prompt", o.verbose_prompt, "print the prompt's token ids to stderr")
      ->group(text);
  command.add_flag("--special", o.special, "print control tokens too")->group(text);
  command
      .add_option("--grammar-file,--grammar", o.grammar_file,
                  "a GBNF file that the text must match")
      ->type_name("FILE")
      ->group(text);
  command.add_option("-j,--json-schema", o.schema, "a JSON schema that the text must be valid by")
      ->type_name("JSON")
      ->group(text);
  command.add_option("--json-schema-file", o.schema_file, "the same, from a file")
      ->type_name("FILE")
      ->group(text);
  const char* chat = "Chat";
  command
      .add_flag("-i,--interactive,--conversation,!--no-conversation", o.chat, "chat (also -cnv)")
      ->group(chat);
  command.add_option("--system", o.system, "the system prompt (also -sys)")
      ->type_name("TEXT")
      ->group(chat);
  command
      .add_option("--chat-template", o.chat_template,
                  fmt::format("a Jinja file, or one of {} (default: the model's)",
                              model::BuiltInTemplateList()))
      ->type_name("NAME|FILE")
      ->group(chat);
  command.add_flag("--jinja")
      ->description("templates are always Jinja: accepted, changes nothing")
      ->group(chat);
  command
      .add_flag("--think,!--no-think", o.think,
                "let models that can think before they answer (default: on)")
      ->group(chat);
  AddSamplingOptions(command, o.sampling, "a new one each time, which is printed");
  AddModelOptions(command, o.model, {});
}

std::shared_ptr<const serving::Grammar> ChooseGrammar(const RunOptions& o) {
  const bool gbnf = !o.grammar_file.empty(), file = !o.schema_file.empty(),
             text = !o.schema.empty();
  if (gbnf + file + text > 1)
    throw CLI::ValidationError("--grammar",
                               "give one of --grammar, --json-schema and --json-schema-file");
  if (gbnf) return serving::Grammar::FromGbnf(ReadFile(o.grammar_file));
  if (!file && !text) return nullptr;
  const std::string schema = file ? ReadFile(o.schema_file) : o.schema;
  return serving::Grammar::FromJsonSchema(serving::ParseSchemaText(schema));
}

std::string Prompt(const RunOptions& o) {
  if (o.prompt_file.empty()) return o.escapes ? Unescape(o.prompt) : o.prompt;
  if (!o.prompt.empty()) throw CLI::ValidationError("-f", "give either -p or -f");
  std::string text = ReadFile(o.prompt_file);
  if (text.ends_with('\n')) text.pop_back();  // removes the editor's line end, as llama.cpp does
  return text;
}

void PrintTokens(const model::Tokenizer& tokenizer, std::span<const model::TokenId> tokens) {
  fmt::print(stderr, "prompt: {} tokens\n", tokens.size());
  for (const auto token : tokens)
    fmt::print(stderr, "{:>6} -> '{}'\n", token, tokenizer.Piece(token, true));
}

int Complete(Generator& generator, const model::Tokenizer& tokenizer, const std::string& prompt,
             const GenerateOptions& generate, const RunOptions& o) {
  const auto tokens = tokenizer.Encode(prompt, tokenizer.wants_bos(), /*parse_special=*/true);
  if (o.verbose_prompt) PrintTokens(tokenizer, tokens);
  if (o.show_prompt && tokens.size() <= generator.context()) {
    fmt::print("{}", prompt);
    std::fflush(stdout);
  }
  const GeneratorStats stats = generator.Run(tokens, generate, [](std::string_view piece) {
    fmt::print("{}", piece);
    std::fflush(stdout);
  });
  fmt::print("\n");
  std::fflush(stdout);
  fmt::print(stderr, "\n{}", Describe(stats, generator.context()));
  return stats.reason == serving::FinishReason::kCancelled ? InterruptExitCode() : 0;
}

int Run(const RunOptions& o) {
  const std::string prompt = Prompt(o);
  GenerateOptions generate;
  generate.max_tokens = o.max_tokens;
  generate.special = o.special;
  for (const std::string& stop : o.stops)
    generate.stops.push_back(o.escapes ? Unescape(stop) : stop);
  generate.grammar = ChooseGrammar(o);
  serving::StopStrings check(generate.stops);  // refuses an empty one before the model is loaded

  const auto where = LoadManifest(o.model);
  const auto file = model::GgufFile::Open(ModelPath(o.model, where));
  const auto tokenizer = model::Tokenizer::FromGguf(*file);
  const auto params = ResolveSampling(o.sampling, *tokenizer, model::ReadModelConfig(*file).vocab);
  ChatSessionOptions chat;
  if (o.chat) {
    chat.chat_template = ChooseTemplate(o.chat_template, file->path(), *tokenizer);
    chat.system = o.escapes ? Unescape(o.system) : o.system;
    chat.first_message = prompt;
    chat.think = o.think;
    chat.generate = generate;
  } else if (!o.system.empty()) {
    throw CLI::ValidationError("--system", "needs a chat; add -i");
  }
  const PlannedModel planned =
      PlanModel(*file, where, ResolveTopology(o.model), ToPlanOptions(o.model), o.model);
  const auto engine = LoadEngine(file, planned, o.model);
  Generator generator(*engine, tokenizer, params);
  const InterruptGuard guard;
  generate.continues = !o.chat && !prompt.empty();
  const int code = o.chat ? RunChat(generator, *tokenizer, chat)
                          : Complete(generator, *tokenizer, prompt, generate, o);
  if (o.sampling.draws_seed()) fmt::print(stderr, "seed       {}\n", params.seed);
  return code;
}

}  // namespace

Command AddRun(CLI::App& program) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = program.add_subcommand("run", "generate text from a prompt, or chat (-i)");
  Describe(*command, *options);
  return {command, [options] { return Run(*options); }};
}

}  // namespace larder::node::commands
