// Options that are counts, seconds or sizes, with their checks. CLI11 reads "-1" as the largest
// unsigned number, and Range accepts "nan"; these refuse both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace larder::node::inline options {

// Wrong usage (exit code 2) unless the value is a whole number of at least `least`.
CLI::Option* AddCount(CLI::App& command, const std::string& name, size_t& value,
                      const std::string& text, size_t least = 0);

// The same for seconds from `least` to `most`, and for a size such as "1152M", which ParseBytes
// reads.
CLI::Option* AddSeconds(CLI::App& command, const std::string& name, double& value,
                        const std::string& text, double least, double most);
CLI::Option* AddBytes(CLI::App& command, const std::string& name, std::string& value,
                      const std::string& text);

// Of requests a second: more than 0, or "inf".
CLI::Option* AddRate(CLI::App& command, const std::string& name, double& value,
                     const std::string& text);

// For CLI11's check(): an empty text if the value is a number (finite or whole) from `least` to
// `most`, else what is wrong. Without `most` the limit is the type's.
std::function<std::string(const std::string&)> NumberFrom(double least, double most);
std::function<std::string(const std::string&)> WholeNumberFrom(
    int64_t least, int64_t most = std::numeric_limits<int64_t>::max());

// For CLI11's check(), in addition to a Range, which accepts "nan": an empty text if the value is a
// finite number, else what is wrong.
std::string NotFinite(const std::string& text);

// A size such as "1152M": K, M or G times 2^10, 2^20, 2^30. NotBytes is for CLI11's check(), like
// NotFinite; ParseBytes reads a text that NotBytes has accepted.
std::string NotBytes(const std::string& text);
uint64_t ParseBytes(const std::string& text);

}  // namespace larder::node::options
