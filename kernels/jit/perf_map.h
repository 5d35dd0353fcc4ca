// Names of generated functions for `perf`, which looks for them in /tmp/perf-PID.map. Written only
// if the environment has LARDER_PERF_MAP=1; it is a variable and not an option so that child
// processes inherit it. Set-up only.
#pragma once

#include <cstddef>
#include <string_view>

namespace larder::kernels::inline jit {

// If the variable is set, adds the line for `bytes` bytes of code at `code` ("START SIZE name",
// both in hex). The process's first call creates the file, or truncates one left by an earlier
// process of the same number. Any thread. Throws Error if the file cannot be written.
void AddToPerfMap(const void* code, size_t bytes, std::string_view name);

}  // namespace larder::kernels::jit
