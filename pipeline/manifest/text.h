// Pieces of what is said of manifests and clusters. Used by this folder only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace larder::pipeline {

struct Manifest;
struct ServerSpec;
struct SocketSpec;

// "PATH:LINE: WHERE" with whatever of them there is.
std::string At(const std::string& path, int line, const std::string& where);
// The same of a socket's table.
std::string AtSocket(const Manifest& manifest, const ServerSpec& server, const SocketSpec& socket);
// A piece of untrusted text fit for a message: one line, printable, at most about 60 bytes.
std::string Shown(std::string_view text);
inline double Mb(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

}  // namespace larder::pipeline
