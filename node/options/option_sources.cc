#include "node/options/option_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "base/error.h"

namespace larder::node::inline options {
namespace {

constexpr size_t kMostConfigBytes = 1 << 20;
constexpr const char* kGroup = "Settings";

bool IsFlag(const CLI::Option& option) { return option.get_expected_max() == 0; }

bool TakesSeveral(const CLI::Option& option) {
  return option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
         option.get_items_expected_max() > 1;
}

// Null for --help and --config, which are for the command line alone.
const CLI::Option* FindOption(const CLI::App& command, const std::string& name) {
  if (name.empty() || name == "help" || name == "config") return nullptr;
  return command.get_option_no_throw("--" + name);
}

// The options that the arguments name. As CLI11, it takes any text that looks like an option for
// one.
std::set<const CLI::Option*> OptionsIn(const CLI::App& command,
                                       const std::vector<std::string>& arguments) {
  std::set<const CLI::Option*> found;
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument.starts_with("--")) {
      found.insert(command.get_option_no_throw(argument.substr(0, argument.find('='))));
    } else if (argument.starts_with('-')) {
      for (size_t i = 1; i < argument.size(); ++i) {  // "-vt4" is -v and -t
        const CLI::Option* option = command.get_option_no_throw(std::string("-") + argument[i]);
        found.insert(option);
        if (option == nullptr || !IsFlag(*option)) break;
      }
    }
  }
  return found;
}

std::string ConfigPath(const std::vector<std::string>& arguments) {
  const char* variable = std::getenv("LARDER_CONFIG");
  std::string path = variable == nullptr ? "" : variable;
  constexpr std::string_view kOption = "--config", kWithValue = "--config=";
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i].starts_with(kWithValue)) path = arguments[i].substr(kWithValue.size());
    if (arguments[i] == kOption && i + 1 < arguments.size()) path = arguments[i + 1];
  }
  return path;
}

std::optional<bool> ParseFlag(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"1", "true", "yes", "on"})
    if (text == yes) return true;
  for (const char* no : {"0", "false", "no", "off"})
    if (text == no) return false;
  return std::nullopt;
}

// The lines of a text, such as a variable for an option that may be given several times.
std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<OptionSources::Given> FromEnvironment(const CLI::App& command) {
  std::vector<OptionSources::Given> all;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (FindOption(command, name) == nullptr) continue;
      const std::string variable = VariableOf(name);
      const char* value = std::getenv(variable.c_str());
      if (value == nullptr || *value == '\0') continue;
      std::string text = value;
      // Kubernetes sets LARDER_PORT=tcp://10.0.0.1:80 for pods beside a service named larder.
      if (name == "port" && text.find("://") != std::string::npos) continue;
      if (IsFlag(*option)) {
        const std::optional<bool> flag = ParseFlag(text);
        if (!flag) throw Error("{} is '{}': expected true or false", variable, text);
        text = *flag ? "true" : "false";
      }
      all.push_back(
          {option, name, variable, TakesSeveral(*option) ? LinesOf(text) : std::vector{text}});
      break;
    }
  }
  return all;
}

int LineOf(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

// A key of the file as the value of an option; `place`: file, line and key.
std::vector<std::string> ValuesOf(const toml::node& node, const CLI::Option& option,
                                  const std::string& place) {
  if (IsFlag(option)) {
    const auto* flag = node.as_boolean();
    if (flag == nullptr) throw Error("{}: expected true or false", place);
    return {flag->get() ? "true" : "false"};
  }
  const auto text_of = [&](const toml::node& value) -> std::string {
    if (const auto* text = value.as_string()) return text->get();
    if (const auto* number = value.as_integer()) return fmt::format("{}", number->get());
    if (const auto* number = value.as_floating_point()) return fmt::format("{}", number->get());
    throw Error(
        "{}: expected a text or a number{}", place,
        TakesSeveral(option) || option.get_delimiter() != '\0' ? ", or an array of these" : "");
  };
  const toml::array* array = node.as_array();
  if (array == nullptr) return {text_of(node)};
  std::vector<std::string> values;
  for (const toml::node& value : *array) values.push_back(text_of(value));
  if (option.get_delimiter() != '\0')
    return {fmt::format("{}", fmt::join(values, std::string(1, option.get_delimiter())))};
  if (!TakesSeveral(option)) throw Error("{}: expected one value, not an array", place);
  return values;
}

toml::table ParseConfig(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostConfigBytes + 1, '\0');
  if (file) {
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad())
    throw Error("--config {}: can't read it: {}", path, std::strerror(errno));
  if (text.size() > kMostConfigBytes)
    throw Error("--config {}: more than {} bytes: expected a TOML file of options", path,
                kMostConfigBytes);
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw Error("{}:{}: not TOML: {}", path, error.source().begin.line, error.description());
  }
}

bool AnyHas(std::span<const CLI::App* const> all, const std::string& key) {
  return std::any_of(all.begin(), all.end(),
                     [&](const CLI::App* c) { return FindOption(*c, key) != nullptr; });
}

// The values of [command], then those at the top that it has an option for.
std::vector<OptionSources::Given> FromFile(const std::string& path, const CLI::App& command,
                                           std::span<const CLI::App* const> all) {
  const toml::table root = ParseConfig(path);
  std::vector<OptionSources::Given> section, top;
  const auto take = [&](const toml::table& table, const CLI::App& of,
                        std::vector<OptionSources::Given>* to) {
    for (const auto& [key, node] : table) {
      if (to == &top && node.is_table()) continue;
      const std::string place = fmt::format("{}:{}: {}", path, LineOf(node), key.str());
      std::string name(key.str());
      std::replace(name.begin(), name.end(), '_', '-');
      const CLI::Option* option = FindOption(of, name);
      if (option != nullptr) {
        if (to != nullptr) to->push_back({option, name, place, ValuesOf(node, *option, place)});
      } else if (to == &top && !all.empty() && !AnyHas(all, name)) {
        throw Error("{}: no command has an option --{}; expected the long name of one", place,
                    name);
      } else if (to != &top) {
        throw Error("{}: `larder {}` has no option --{}; expected the long name of one", place,
                    of.get_name(), name);
      }
    }
  };
  for (const auto& [key, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr) continue;
    const std::string name(key.str());
    if (name == command.get_name()) {
      take(*table, command, &section);
      continue;
    }
    const auto other = std::find_if(all.begin(), all.end(),
                                    [&](const CLI::App* c) { return c->get_name() == name; });
    if (other != all.end()) {
      take(*table, **other, nullptr);
    } else if (!all.empty()) {
      std::string names;
      for (const CLI::App* c : all) names += (names.empty() ? "" : ", ") + c->get_name();
      throw Error("{}:{}: [{}]: there is no such command; expected {}", path, LineOf(node), name,
                  names);
    }
  }
  take(root, command, &top);
  section.insert(section.end(), top.begin(), top.end());
  return section;
}

}  // namespace

std::string VariableOf(std::string_view long_name) {
  std::string name = "LARDER_";
  for (const char c : long_name)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

void OptionSources::Describe(CLI::App& command) {
  const std::string text = "TOML file of options: keys are long names, in [" + command.get_name() +
                           "] or for all commands at the top";
  command.add_option("--config", text)
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group(kGroup);
  command.footer(
      "\nEvery option may also be a variable, such as LARDER_LOG_LEVEL for --log-level, or be in "
      "the file of --config.");
}

std::vector<std::string> OptionSources::Complete(const CLI::App& command,
                                                 std::span<const CLI::App* const> all,
                                                 std::vector<std::string> arguments,
                                                 std::span<const std::string> settled) {
  std::set<const CLI::Option*> have = OptionsIn(command, arguments);
  for (const std::string& name : settled) have.insert(FindOption(command, name));
  std::vector<Given> found = FromEnvironment(command);
  if (const std::string path = ConfigPath(arguments); !path.empty()) {
    std::vector<Given> file = FromFile(path, command, all);
    std::move(file.begin(), file.end(), std::back_inserter(found));
  }
  std::vector<std::string> complete;
  for (Given& given : found) {
    if (!have.insert(given.option).second) continue;
    for (const std::string& value : given.values)
      complete.push_back("--" + given.name + "=" + value);
    given_.push_back(std::move(given));
  }
  std::move(arguments.begin(), arguments.end(), std::back_inserter(complete));
  return complete;
}

std::string OptionSources::Reword(std::string message) const {
  for (const Given& given : given_) {
    const std::string name = given.option->get_name();
    if (message.starts_with(name + ":")) return message.replace(0, name.size(), given.place);
  }
  return message;
}

}  // namespace larder::node::options
