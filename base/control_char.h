// Whether a character of text controls a terminal or ends a line. Text that others chose is shown
// without them.
#pragma once

namespace larder {

constexpr bool IsControlChar(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace larder
