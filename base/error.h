// Error: a set-up or input error that a person can mend. Thrown anywhere outside the data path,
// caught only in node/ (and tests). The text is one line: what, where (file, key, field, host),
// what was expected, what to do. A bug is a LARDER_CHECK (base/check.h), not an Error.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace larder {

class Error : public std::runtime_error {
 public:
  template <typename... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

}  // namespace larder
