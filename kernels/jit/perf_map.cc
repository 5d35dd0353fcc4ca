#include "kernels/jit/perf_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "base/error.h"

namespace larder::kernels::inline jit {
namespace {

bool IsWanted() {
  const char* value = std::getenv("LARDER_PERF_MAP");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

void AddToPerfMap(const void* code, size_t bytes, std::string_view name) {
  if (!IsWanted()) return;
  static std::mutex mutex;
  static int file = -1;  // stays open until the process ends
  const std::lock_guard lock(mutex);
  const std::string path = fmt::format("/tmp/perf-{}.map", getpid());
  // O_NOFOLLOW: another user may have left a symbolic link of this name in /tmp.
  if (file < 0)
    file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  const std::string line =
      fmt::format("{:x} {:x} {}\n", reinterpret_cast<uintptr_t>(code), bytes, name);
  if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw Error("LARDER_PERF_MAP: cannot write {}: {}", path, std::strerror(errno));
  }
}

}  // namespace larder::kernels::jit
