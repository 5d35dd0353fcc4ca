#include "node/options/count_option.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace larder::node::inline options {

CLI::Option* AddCount(CLI::App& command, const std::string& name, size_t& value,
                      const std::string& text, size_t least) {
  const auto check = [least](const std::string& given) {
    size_t number = 0;
    const char* end = given.data() + given.size();
    const auto [stop, failed] = std::from_chars(given.data(), end, number);
    if (failed == std::errc() && stop == end && number >= least) return std::string();
    return fmt::format("'{}' is not a whole number of at least {}", given, least);
  };
  return command.add_option(name, value, text)->type_name("N")->check(check, "");
}

CLI::Option* AddSeconds(CLI::App& command, const std::string& name, double& value,
                        const std::string& text, double least, double most) {
  return command.add_option(name, value, text)->type_name("S")->check(NumberFrom(least, most), "");
}

CLI::Option* AddBytes(CLI::App& command, const std::string& name, std::string& value,
                      const std::string& text) {
  return command.add_option(name, value, text)->type_name("BYTES")->check(NotBytes, "");
}

CLI::Option* AddRate(CLI::App& command, const std::string& name, double& value,
                     const std::string& text) {
  const auto check = [](const std::string& given) {
    double rate = 0;
    const bool number = CLI::detail::lexical_cast(given, rate) && rate > 0;  // NaN is not
    if (number && (std::isfinite(rate) || given == "inf")) return std::string();
    return fmt::format("'{}' is not a number of requests/s, or inf", given);
  };
  return command.add_option(name, value, text)->type_name("R")->check(check, "");
}

std::function<std::string(const std::string&)> NumberFrom(double least, double most) {
  return [=](const std::string& given) {
    double number = 0;
    const char* end = given.data() + given.size();
    const auto [stop, failed] = std::from_chars(given.data(), end, number);
    // NaN fails this check: it is in no range.
    if (failed == std::errc() && stop == end && number >= least && number <= most)
      return std::string();
    return fmt::format("'{}' is not a number from {} to {}", given, least, most);
  };
}

std::function<std::string(const std::string&)> WholeNumberFrom(int64_t least, int64_t most) {
  return [=](const std::string& given) {
    int64_t number = 0;
    const char* end = given.data() + given.size();
    const auto [stop, failed] = std::from_chars(given.data(), end, number);
    if (failed == std::errc() && stop == end && number >= least && number <= most)
      return std::string();
    return fmt::format("'{}' is not a whole number of at least {}", given, least) +
           (most < std::numeric_limits<int32_t>::max() ? fmt::format(", {} at most", most) : "");
  };
}

std::string NotFinite(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == '\0' && std::isfinite(value) ? "" : fmt::format("'{}' is not a number", text);
}

std::string NotBytes(const std::string& text) {
  return ParseBytes(text) != 0 ? ""
                               : fmt::format("'{}' is not a size such as 1152M or 32768K", text);
}

uint64_t ParseBytes(const std::string& text) {
  constexpr uint64_t kMost = uint64_t{1} << 50;
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, number);
  if (failed != std::errc() || number > kMost || end - stop > 1) return 0;
  const uint64_t unit = stop == end    ? 1
                        : *stop == 'K' ? uint64_t{1} << 10
                        : *stop == 'M' ? uint64_t{1} << 20
                        : *stop == 'G' ? uint64_t{1} << 30
                                       : 0;
  return unit == 0 || number > kMost / unit ? 0 : number * unit;
}

}  // namespace larder::node::options
