// Options that are not on the command line: each option of each command may also be a variable of
// the environment (--max-stall-ms: LARDER_MAX_STALL_MS) or a key of a TOML file (--config FILE,
// LARDER_CONFIG). The command line beats the environment, and that the file. For the main thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace larder::node::inline options {

class OptionSources {
 public:
  // Adds --config and a line of help.
  static void Describe(CLI::App& command);

  // The arguments of `command` (without its name), preceded by arguments for options that only the
  // environment or the file sets. `all`: every command, to distinguish keys of other commands from
  // mistakes; empty: keys are not checked. `settled`: long names of options that have their values
  // already. Throws Error if a variable, the file or a key in it is wrong.
  std::vector<std::string> Complete(const CLI::App& command, std::span<const CLI::App* const> all,
                                    std::vector<std::string> arguments,
                                    std::span<const std::string> settled = {});

  // A message about an option ("--timeout: ..."), with the place of its value if that is not the
  // command line ("LARDER_TIMEOUT: ...", "FILE:3: timeout: ...").
  std::string Reword(std::string message) const;

  struct Given {
    const CLI::Option* option;
    std::string name;   // the long name that was used
    std::string place;  // for messages
    std::vector<std::string> values;
  };

 private:
  std::vector<Given> given_;
};

// "LARDER_MAX_STALL_MS".
std::string VariableOf(std::string_view long_name);

}  // namespace larder::node::options
