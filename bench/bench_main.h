// The main() of every benchmark program: Google Benchmark with Larder's default settings, which the
// command line overrides.
#pragma once

#include <functional>

namespace larder::bench {

// Registers and runs the benchmarks and returns main's exit status. Defaults: five repetitions,
// aggregates only (median and others), counters as columns. The report's context names the
// instruction set, the cores and their L3. A larder::Error is printed as one line.
int RunBenchmarks(int argc, char** argv, const std::function<void()>& register_all);

}  // namespace larder::bench
