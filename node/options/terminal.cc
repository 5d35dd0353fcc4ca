#include "node/options/terminal.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace larder::node::inline options {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }
bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

std::optional<std::string> ReadInputLine(bool* interrupted) {
  *interrupted = false;
  std::string line;
  for (;;) {
    // One byte at a time, so that what follows the line stays in the pipe. A person types slower
    // than this.
    char c = 0;
    const ssize_t n = read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) {
      *interrupted = true;
      return std::string();
    }
    if (n <= 0) return line.empty() ? std::nullopt : std::optional(line);
    if (c == '\n') return line;
    line += c;
  }
}

std::string ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> owned(
      path == "-" ? nullptr : std::fopen(path.c_str(), "rb"),
      [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  std::FILE* file = path == "-" ? stdin : owned.get();
  if (file == nullptr) throw Error("{}: {}", path, std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof buffer, file)) > 0) text.append(buffer, n);
  if (std::ferror(file)) throw Error("{}: {}", path, std::strerror(errno));
  return text;
}

std::string HumanBytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes * 1e-9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes * 1e-6);
  if (bytes >= 1e4) return fmt::format("{:.1f} KB", bytes * 1e-3);
  return fmt::format("{:.0f} bytes", bytes);
}

std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const size_t found = std::string_view("nrt\\\"'").find(next);
    if (next != '\0' && found != std::string_view::npos) {
      out += "\n\r\t\\\"'"[found];
      ++i;
    } else if (next == 'x' && i + 3 < text.size() && HexDigit(text[i + 2]) >= 0 &&
               HexDigit(text[i + 3]) >= 0) {
      out += static_cast<char>(HexDigit(text[i + 2]) * 16 + HexDigit(text[i + 3]));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace larder::node::options
