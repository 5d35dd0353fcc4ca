#include "node/commands/app.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/formats/isa.h"
#include "node/commands/command.h"
#include "node/options/option_sources.h"
#include "node/options/peer_flags.h"
#include "node/service/exit_code.h"
#include "node/service/service_log.h"
#include "node/service/signals.h"
#include "rdma/proof/link_warning.h"

namespace larder::node::inline commands {
namespace {

// llama-cli's options with several letters after one dash, which CLI11 would read as one-letter
// options. Those of servers: node/options/peer_flags.h.
struct Spelling {
  std::string_view short_form, long_form;
};
constexpr Spelling kSpellings[] = {
    {"-cnv", "--conversation"}, {"-no-cnv", "--no-conversation"}, {"-sys", "--system"}};

std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    const auto* found = std::find_if(std::begin(kSpellings), std::end(kSpellings),
                                     [&](const Spelling& s) { return s.short_form == argument; });
    if (found != std::end(kSpellings)) argument = found->long_form;
  }
  return arguments;
}

// What a message quotes (a path, a key of a file) may contain line ends; the error still has to be
// one line.
void Complain(const char* kind, std::string text) {
  std::fflush(stdout);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  if (LogsAreJson()) {
    fmt::print(stderr, "{}\n", JsonLogLine("error", text));
  } else {
    fmt::print(stderr, "larder: {}: {}\n", kind, text);
  }
}

int Usage(const std::string& text, const CLI::App* command) {
  Complain("usage", text);
  if (!LogsAreJson())
    fmt::print(stderr, "try: larder {}--help\n",
               command == nullptr ? "" : command->get_name() + " ");
  return kUsage;
}

// Removes CLI11's mark of a negated flag, as in "--no-escape{false}", from the help.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    constexpr std::string_view kMark = "{false}";
    for (size_t at; (at = name.find(kMark)) != std::string::npos;) name.erase(at, kMark.size());
    return name;
  }
};

// Rewords CLI11's "Could not convert: --seconds = soon".
std::string ConversionText(const std::string& text) {
  constexpr std::string_view kBegin = "Could not convert: ", kBetween = " = ";
  const size_t between = text.find(kBetween);
  if (!text.starts_with(kBegin) || between == std::string::npos) return text;
  return fmt::format("{}: invalid value '{}'", text.substr(kBegin.size(), between - kBegin.size()),
                     text.substr(between + kBetween.size()));
}

// CLI11 reports a missing option before an unknown one, but the unknown one may be the missing one
// mistyped.
std::string UsageText(const CLI::ParseError& error, const CLI::App& command) {
  const std::vector<std::string> unknown = command.remaining();
  if (unknown.empty()) return ConversionText(error.what());
  const bool option = unknown[0].starts_with('-');
  return option
             ? fmt::format("larder {} has no option '{}'", command.get_name(), unknown[0])
             : fmt::format("larder {}: unexpected argument '{}'", command.get_name(), unknown[0]);
}

int Run(const Command& command, const OptionSources& sources) {
  try {
    const int code = command.run();
    // A full disk or a closed pipe is detected only here.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw Error("can't write to standard output");
    return code;
  } catch (const CLI::ParseError& error) {
    return Usage(sources.Reword(error.what()), command.options);
  } catch (const InterruptedError&) {
    return InterruptExitCode();
  } catch (const Error& error) {
    Complain("error", error.what());
  } catch (const std::bad_alloc&) {
    Complain("error", "out of memory; use a smaller context (-c), fewer slots, or a smaller model");
  } catch (const std::exception& error) {
    Complain("error", error.what());
  }
  return kFailed;
}

bool AsksForHelp(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  });
}

// How log lines are written; options of every command.
struct LogOptions {
  std::string format = "text";
  std::string level;  // empty: warnings, and what a command says otherwise
};

void AddLogOptions(CLI::App& command, LogOptions& options) {
  const char* group = "Settings";
  command
      .add_option("--log-format", options.format,
                  "text, or json: one object a line (default: text)")
      ->type_name("NAME")
      ->check(
          [](const std::string& text) {
            return text == "text" || text == "json" ? ""
                                                    : fmt::format("'{}' is not text or json", text);
          },
          "")
      ->group(group);
  command.add_option("--log-level", options.level, "error, warn, info or debug (default: warn)")
      ->type_name("NAME")
      ->check(
          [](const std::string& text) {
            return LogLevelByName(text)
                       ? ""
                       : fmt::format("'{}' is not error, warn, info or debug", text);
          },
          "")
      ->group(group);
}

}  // namespace

int Main(int argc, char** argv) {
  auto log = spdlog::stderr_color_mt("larder");
  log->set_pattern("larder: %^%l%$: %v");
  spdlog::set_default_logger(std::move(log));
  spdlog::set_level(spdlog::level::warn);
  rdma::SetSayLinkWarning([](const std::string& line) { spdlog::warn("{}", line); });

  CLI::App program("Runs language models from the last-level caches of CPUs.", "larder");
  program.formatter(std::make_shared<HelpFormatter>());
  program.set_version_flag("--version", [] {
    return fmt::format("larder {} ({} kernels on this machine)", LARDER_VERSION,
                       kernels::IsaName(kernels::BestIsa()));
  });
  program.require_subcommand(1);
  // If an option is given twice the last one wins, so that a user can override a script's options.
  program.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  program.footer(
      "\nFirst steps:\n"
      "  larder run -m model.gguf -p \"Once upon a time\"\n"
      "  larder synth --shape bench-24m -o bench.gguf && larder bench -m bench.gguf\n"
      "  larder serve -m model.gguf\n"
      "  larder doctor\n"
      "`larder COMMAND --help` describes a command.");
  program.get_formatter()->column_width(34);
  const std::array commands = {
      AddRun(program),      AddBench(program),    AddPlan(program),       AddPerplexity(program),
      AddTokenize(program), AddInspect(program),  AddSynth(program),      AddSplit(program),
      AddDoctor(program),   AddNode(program),     AddBenchServe(program), AddStatus(program),
      AddUnit(program),     AddServe(program),    AddTune(program),       AddBatch(program),
      AddVerify(program),   AddManifest(program), AddSimulate(program)};
  LogOptions logs;
  std::vector<const CLI::App*> all;
  for (const Command& command : commands) {
    AddLogOptions(*command.options, logs);
    OptionSources::Describe(*command.options);
    all.push_back(command.options);
  }

  std::vector<std::string> arguments = Arguments(argc, argv);
  if (arguments.empty()) {
    fmt::print(stderr, "{}", program.help());
    return kUsage;
  }
  const bool known = std::any_of(commands.begin(), commands.end(), [&](const Command& c) {
    return c.options->get_name() == arguments[0];
  });
  if (!arguments[0].starts_with('-') && !known) {
    std::string names;
    for (const Command& c : commands) names += (names.empty() ? "" : ", ") + c.options->get_name();
    return Usage(fmt::format("unknown command '{}'; the commands are {}", arguments[0], names),
                 nullptr);
  }
  OptionSources sources;
  std::vector<std::string> notes;
  if (const auto named =
          std::find_if(commands.begin(), commands.end(),
                       [&](const Command& c) { return c.options->get_name() == arguments[0]; });
      named != commands.end() && !AsksForHelp(arguments)) {
    try {
      TranslatedArguments own =
          WithoutPeerFlags(*named->options, {arguments.begin() + 1, arguments.end()});
      notes = std::move(own.notes);
      arguments = sources.Complete(*named->options, all, std::move(own.arguments));
    } catch (const Error& error) {
      return Usage(error.what(), named->options);
    }
    arguments.insert(arguments.begin(), named->options->get_name());
  }
  auto chosen = [&] {
    return std::find_if(commands.begin(), commands.end(),
                        [](const Command& c) { return c.options->parsed(); });
  };
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 expects them in reverse
    program.parse(arguments);
  } catch (const CLI::Success& wanted) {  // --help, --version
    const auto command = chosen();
    if (dynamic_cast<const CLI::CallForVersion*>(&wanted) != nullptr) {
      fmt::print("{}\n", wanted.what());
    } else {
      fmt::print("{}",
                 command == commands.end() ? program.help() : command->options->help("larder"));
    }
    return 0;
  } catch (const CLI::ParseError& error) {
    const auto command = chosen();
    if (command == commands.end()) return Usage(error.what(), nullptr);
    return Usage(sources.Reword(UsageText(error, *command->options)), command->options);
  }
  if (logs.format == "json") LogAsJson();
  if (const auto level = LogLevelByName(logs.level)) FixLogLevel(*level);
  for (const std::string& note : notes) spdlog::info("{}", note);
  return Run(*chosen(), sources);
}

}  // namespace larder::node::commands
