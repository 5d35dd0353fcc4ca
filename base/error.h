// Error: a set-up or input error that a person can fix. Any code outside the data path may throw
// it. It is caught at a border: the command, a client's request, a connection, an attempt to
// connect. The text is one line: what, where (file, key, field, host), what was expected, what to
// do. A bug is a LARDER_CHECK (base/check.h), not an Error.
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
      : std::runtime_error(Printable(fmt::format(format, std::forward<Args>(args)...))) {}

 private:
  // Messages quote the contents of files. Control bytes in them (line ends, NUL, escape sequences)
  // are shown as \xNN, so that they cannot act on a terminal.
  static std::string Printable(std::string text) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string out;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte != 0x7f) {
        out += c;
      } else {
        out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    }
    return out;
  }
};

}  // namespace larder
