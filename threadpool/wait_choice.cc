#include "threadpool/wait_choice.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "topology/host.h"

namespace larder::threadpool {
namespace {

// Longer than the waits inside a layer (a few us) and the gap between two tokens on one machine
// (tens of us); far shorter than a time slice (3 ms), which is what a spinning thread costs a
// preempted partner.
constexpr uint64_t kSharedSpinNs = 50'000;
// With more threads than cores, a spinning thread keeps the awaited thread from running. The time
// of two polls is left for a partner that happens to run at this moment.
constexpr uint64_t kOvercommittedSpinNs = 500;

}  // namespace

sync::WaitPolicy ChooseWaitPolicy(const topology::Topology& topology, std::span<const CpuId> cpus,
                                  bool isolated, std::span<const CpuId> others) {
  using Mode = sync::WaitPolicy::Mode;
  const auto core_of = [&](CpuId cpu) {
    for (const topology::Core& core : topology.cores()) {
      if (std::find(core.cpus.begin(), core.cpus.end(), cpu) != core.cpus.end())
        return core.id.value;
    }
    return -1 - cpu.value;  // a CPU the snapshot does not know counts as a core of its own
  };
  // Two threads on one core, be it one CPU or two SMT siblings, are over-committed; so is an
  // unpinned thread beyond the number of cores. Threads outside this pool that share a core with
  // each other do not matter.
  std::set<int32_t> cores, all;
  size_t unpinned = 0;
  bool shared_core = false;
  for (const CpuId cpu : cpus) {
    if (cpu.valid()) {
      shared_core |= !cores.insert(core_of(cpu)).second;
    } else {
      ++unpinned;
    }
  }
  all = cores;
  for (const CpuId cpu : others) {
    if (cpu.valid()) {
      shared_core |= cores.contains(core_of(cpu));
      all.insert(core_of(cpu));
    } else {
      ++unpinned;
    }
  }
  const bool overcommitted = shared_core || all.size() + unpinned > topology.cores().size();
  if (overcommitted) return {Mode::kAdaptive, sync::SpinIterationsFor(kOvercommittedSpinNs)};

  const std::vector<CpuId> kernel_isolated = topology::IsolatedCpus();
  const bool all_isolated = !cpus.empty() && std::all_of(cpus.begin(), cpus.end(), [&](CpuId cpu) {
    return std::find(kernel_isolated.begin(), kernel_isolated.end(), cpu) != kernel_isolated.end();
  });
  if (isolated || all_isolated) return {Mode::kSpin, 0};
  return {Mode::kAdaptive, sync::SpinIterationsFor(kSharedSpinNs)};
}

std::string Describe(const sync::WaitPolicy& policy) {
  if (policy.mode == sync::WaitPolicy::Mode::kSpin) return "spin: the cores are ours";
  const double us =
      1e3 * policy.spin_iterations / std::max<uint32_t>(1, sync::SpinIterationsFor(1'000'000));
  return fmt::format("adaptive: {:.3g} us of spinning, then sleep", us);
}

}  // namespace larder::threadpool
