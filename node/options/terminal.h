// What differs when a person sits at the other end: width, line input, files as standard input.
#pragma once

#include <optional>
#include <string>

namespace larder::node {

bool StderrIsTerminal();
bool StdinIsTerminal();
bool StdoutIsTerminal();

// One line of standard input without its end; nullopt at the end of input. `interrupted` becomes true, with
// an empty line, if a signal handler ran while waiting. Line editing is the terminal's own.
std::optional<std::string> ReadInputLine(bool* interrupted);

// The whole of a file ("-": standard input). Throws Error.
std::string ReadFile(const std::string& path);

// "1.23 GB", "45.6 MB", "789 bytes".
std::string HumanBytes(double bytes);

// \n \r \t \\ \" \' \xHH become the bytes they name; anything else stays as it is, as in llama.cpp.
std::string Unescape(const std::string& text);

}  // namespace larder::node
