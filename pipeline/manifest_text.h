// Pieces of a manifest's messages. Used by the manifest's files only.
#pragma once

#include <string>
#include <string_view>

namespace larder::pipeline {

// "PATH:LINE: WHERE" with whatever of them there is.
std::string At(const std::string& path, int line, const std::string& where);
// A piece of untrusted text fit for a message: one line, printable, at most about 60 bytes.
std::string Shown(std::string_view text);

}  // namespace larder::pipeline
