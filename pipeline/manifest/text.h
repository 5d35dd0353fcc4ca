// Pieces of messages about manifests and clusters. Used by pipeline/ only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace larder::pipeline::inline manifest {

struct Manifest;
struct ServerSpec;
struct SocketSpec;

// "PATH:LINE: WHERE" without the parts that are empty.
std::string At(const std::string& path, int line, const std::string& where);
// The same for a socket's table.
std::string AtSocket(const Manifest& manifest, const ServerSpec& server, const SocketSpec& socket);
// Untrusted text made fit for a message: one line, printable, at most about 60 bytes.
std::string Shown(std::string_view text);
inline double Mb(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

}  // namespace larder::pipeline::manifest
