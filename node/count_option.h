// An option that is a count: CLI11 takes "-1" for the largest unsigned number, this does not.
#pragma once

#include <cstddef>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace larder::node {

// Wrong usage (exit code 2) unless the value is a whole number of at least `least`.
CLI::Option* AddCount(CLI::App& command, const std::string& name, size_t& value, const std::string& text,
                      size_t least = 0);

// For CLI11's check(), beside a Range, which lets "nan" pass: empty if the text is a finite number, else what
// is wrong.
std::string NotFinite(const std::string& text);

}  // namespace larder::node
