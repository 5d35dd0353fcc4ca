#include "node/count_option.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace larder::node {

CLI::Option* AddCount(CLI::App& command, const std::string& name, size_t& value, const std::string& text,
                      size_t least) {
  const auto check = [least](const std::string& given) {
    size_t number = 0;
    const char* end = given.data() + given.size();
    const auto [stop, failed] = std::from_chars(given.data(), end, number);
    if (failed == std::errc() && stop == end && number >= least) return std::string();
    return fmt::format("'{}' is not a whole number from {} on", given, least);
  };
  return command.add_option(name, value, text)->type_name("N")->check(check, "");
}

std::string NotFinite(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == '\0' && std::isfinite(value) ? "" : fmt::format("'{}' is not a number", text);
}

}  // namespace larder::node
