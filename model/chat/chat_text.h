// Text operations of the chat templates, as Jinja and Python define them.
#pragma once

#include <string_view>

namespace larder::model::inline chat {

// Python's str.strip(), Jinja's trim: Unicode white space at both ends.
std::string_view StripSpace(std::string_view text);

// str.lstrip("\n"), str.rstrip("\n").
std::string_view StripLeadingNewlines(std::string_view text);
std::string_view StripTrailingNewlines(std::string_view text);

}  // namespace larder::model::chat
