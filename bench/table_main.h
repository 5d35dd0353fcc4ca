// The main() of the benchmarks that print a table of their own: everything in it was measured in
// alternating rounds on one pinned core.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string_view>

#include "kernels/formats/isa.h"

namespace larder::bench {

struct SizeOption {
  std::string_view name;  // "--rounds"
  size_t* value;          // with its default
  size_t least, most;
};

// Parses `options`, --isa NAME (the host's best) and --cpu N (the first of the topology), pins this
// thread and calls measure(isa). An Error is printed as one line. Returns main's exit status.
int RunTable(int argc, char** argv, std::initializer_list<SizeOption> options,
             const std::function<void(kernels::Isa)>& measure);

}  // namespace larder::bench
