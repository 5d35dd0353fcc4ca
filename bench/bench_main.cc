#include "bench/bench_main.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/ratio.h"
#include "kernels/formats/isa.h"
#include "topology/host.h"
#include "topology/probe.h"

namespace larder::bench {
namespace {

void AddContext() {
  const topology::Topology& machine = Machine();
  std::string l3;
  for (const topology::L3Group& group : machine.l3_groups())
    l3 += fmt::format("{}{} cores on {:.0f} MB", l3.empty() ? "" : ", ", group.cores.size(),
                      static_cast<double>(group.bytes) / (1 << 20));
  benchmark::AddCustomContext("cpu_model", topology::CpuName());
  benchmark::AddCustomContext("isa", std::string(kernels::IsaName(kernels::BestIsa())));
  benchmark::AddCustomContext("read_isa", std::string(topology::ReadKernelIsa()));
  benchmark::AddCustomContext("l3_groups", l3);
}

}  // namespace

int RunBenchmarks(int argc, char** argv, const std::function<void()>& register_all) {
  // The user's arguments come after ours, and the last one takes effect.
  std::vector<std::string> text = {argc > 0 ? argv[0] : "bench", "--benchmark_repetitions=5",
                                   "--benchmark_report_aggregates_only=true",
                                   "--benchmark_counters_tabular=true"};
  for (int i = 1; i < argc; ++i) text.emplace_back(argv[i]);
  std::vector<char*> pointers;
  for (std::string& word : text) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(text.size());
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 2;
  try {
    AddContext();
    register_all();
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", text[0].c_str(), error.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}

}  // namespace larder::bench
