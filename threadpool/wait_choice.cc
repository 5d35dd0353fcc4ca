#include "threadpool/wait_choice.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "topology/host.h"

namespace larder::threadpool {
namespace {

// Longer than the waits inside a layer (a few us) and the gap between two tokens on one machine (tens of us),
// far shorter than a scheduler's slice (3 ms), which is what a spinner costs a preempted partner.
constexpr uint64_t kSharedSpinNs = 50'000;
// With more threads than cores, who spins keeps the awaited thread from running. Two polls' worth is left for
// a partner that happens to run at this moment.
constexpr uint64_t kOvercommittedSpinNs = 500;

}  // namespace

sync::WaitPolicy ChooseWaitPolicy(const topology::Topology& topology, std::span<const CpuId> cpus,
                                  bool isolated) {
  using Mode = sync::WaitPolicy::Mode;
  // Two threads on one core, be it one CPU or two SMT siblings, are over-committed; so is an unpinned thread
  // beyond the number of cores.
  std::set<int32_t> cores;
  size_t unpinned = 0;
  bool shared_core = false;
  for (CpuId cpu : cpus) {
    if (!cpu.valid()) {
      ++unpinned;
      continue;
    }
    int32_t owner = -1 - cpu.value;  // a CPU the snapshot does not know counts as a core of its own
    for (const topology::Core& core : topology.cores()) {
      if (std::find(core.cpus.begin(), core.cpus.end(), cpu) != core.cpus.end()) owner = core.id.value;
    }
    shared_core |= !cores.insert(owner).second;
  }
  const bool overcommitted = shared_core || cores.size() + unpinned > topology.cores().size();
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
  const double us = 1e3 * policy.spin_iterations / std::max<uint32_t>(1, sync::SpinIterationsFor(1'000'000));
  return fmt::format("adaptive: {:.3g} us of spinning, then sleep", us);
}

}  // namespace larder::threadpool
