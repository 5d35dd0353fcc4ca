// The names of generated functions for `perf`, which finds them in /tmp/perf-PID.map. Written where the
// environment has LARDER_PERF_MAP=1; a variable and not an option because the processes that a command starts
// inherit it. Set-up only.
#pragma once

#include <cstddef>
#include <string_view>

namespace larder::kernels {

// Adds the line of `bytes` bytes of code at `code` ("START SIZE name", both in hex), if the variable is set.
// The process's first line makes the file, or replaces what a former process of that number left. Any thread.
// Throws Error if it cannot be written.
void AddToPerfMap(const void* code, size_t bytes, std::string_view name);

}  // namespace larder::kernels
