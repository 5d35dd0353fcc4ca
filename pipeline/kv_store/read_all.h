// Files of this room are read as a whole, or count as unreadable.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace larder::pipeline::inline kv_store {

// Reads `bytes` bytes; false if there are fewer, or on an error.
inline bool ReadAll(int fd, void* to, size_t bytes) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace larder::pipeline::kv_store
