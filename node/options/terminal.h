// The terminal and standard input: width, line input, reading files.
#pragma once

#include <optional>
#include <string>

namespace larder::node::inline options {

bool StderrIsTerminal();
bool StdinIsTerminal();
bool StdoutIsTerminal();

// One line of standard input without its line end; nullopt at the end of input. If a signal handler
// ran during the wait, `interrupted` becomes true and the line is empty. Line editing is the
// terminal's own.
std::optional<std::string> ReadInputLine(bool* interrupted);

// Reads a whole file ("-": standard input). Throws Error.
std::string ReadFile(const std::string& path);

// Formats as "1.23 GB", "45.6 MB", "789 bytes".
std::string HumanBytes(double bytes);

// \n \r \t \\ \" \' \xHH become the bytes they name; anything else stays as it is, as in llama.cpp.
std::string Unescape(const std::string& text);

}  // namespace larder::node::options
