// The main() of every bench: Google Benchmark with Larder's usual settings, which the command line overrides.
#pragma once

#include <functional>

namespace larder::bench {

// Five repetitions, their median (and the other aggregates) only, counters as columns; the report's context
// names the instruction set, the cores and their L3. Registers, runs, returns main's status; a larder::Error
// becomes one line.
int RunBenchmarks(int argc, char** argv, const std::function<void()>& register_all);

}  // namespace larder::bench
