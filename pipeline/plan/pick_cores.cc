#include "pipeline/plan/pick_cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace larder::pipeline::inline plan {
namespace {

using topology::Core;
using topology::Topology;

const char* NameOf(CoreSet::Kind kind) {
  switch (kind) {
    case CoreSet::Kind::kPackage:
      return "package";
    case CoreSet::Kind::kL3:
      return "L3 group";
    case CoreSet::Kind::kNuma:
      return "NUMA node";
    case CoreSet::Kind::kCores:
      return "core";
    case CoreSet::Kind::kCpus:
      return "CPU";
    case CoreSet::Kind::kAll:
      break;
  }
  return "core";
}

std::string List(const std::set<int>& numbers) {
  std::string text;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const int first = *it;
    int last = first;
    for (++it; it != numbers.end() && *it == last + 1; ++it) last = *it;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
    if (last != first) text += fmt::format("-{}", last);
  }
  return text.empty() ? "none" : text;
}

// The core's number in terms of the set's kind. kCpus is handled separately.
int NumberOf(const Core& core, CoreSet::Kind kind) {
  switch (kind) {
    case CoreSet::Kind::kPackage:
      return core.package;
    case CoreSet::Kind::kL3:
      return core.l3_group.value;
    case CoreSet::Kind::kNuma:
      return core.numa_node.value;
    default:
      return core.id.value;
  }
}

std::string Missing(int number, CoreSet::Kind kind, const std::set<int>& there,
                    const Topology& topology) {
  return fmt::format("{} has no {} {} with cores that this process may use; expected some of {}",
                     topology.source(), NameOf(kind), number, List(there));
}

bool PickCpus(const CoreSet& set, bool smt, const Topology& topology,
              std::map<CoreId, std::vector<CpuId>>* picked, std::string* problem) {
  std::map<int, CoreId> core_of;
  std::set<int> there;
  for (const Core& core : topology.cores()) {
    for (const CpuId cpu : core.cpus) {
      core_of[cpu.value] = core.id;
      there.insert(cpu.value);
    }
  }
  for (const int number : set.numbers) {
    const auto core = core_of.find(number);
    if (core == core_of.end()) {
      *problem = Missing(number, set.kind, there, topology);
      return false;
    }
    std::vector<CpuId>& cpus = (*picked)[core->second];
    if (!cpus.empty() && !smt) {
      *problem = fmt::format(
          "CPUs {} and {} are SMT siblings of one core; expected one of them, or smt = true",
          cpus.front().value, number);
      return false;
    }
    cpus.push_back(CpuId(number));
  }
  return true;
}

bool PickWhole(const CoreSet& set, bool smt, const Topology& topology,
               std::map<CoreId, std::vector<CpuId>>* picked, std::string* problem) {
  std::set<int> there;
  for (const Core& core : topology.cores()) there.insert(NumberOf(core, set.kind));
  for (const int number : set.numbers) {
    if (there.count(number) == 0) {
      *problem = Missing(number, set.kind, there, topology);
      return false;
    }
  }
  for (const Core& core : topology.cores()) {
    if (set.kind != CoreSet::Kind::kAll &&
        !std::binary_search(set.numbers.begin(), set.numbers.end(), NumberOf(core, set.kind))) {
      continue;
    }
    (*picked)[core.id] = smt ? core.cpus : std::vector<CpuId>{core.cpus.front()};
  }
  return true;
}

}  // namespace

std::optional<PickedCores> PickCoreSet(const CoreSet& set, bool smt, const Topology& topology,
                                       std::string* problem) {
  std::map<CoreId, std::vector<CpuId>> picked;
  const bool found = set.kind == CoreSet::Kind::kCpus
                         ? PickCpus(set, smt, topology, &picked, problem)
                         : PickWhole(set, smt, topology, &picked, problem);
  if (!found) return {};
  PickedCores result;
  for (const auto& [core, cpus] : picked) result.cores.push_back(core);
  std::sort(result.cores.begin(), result.cores.end(), [&](CoreId a, CoreId b) {
    return std::pair(topology.core(a).l3_group, a) < std::pair(topology.core(b).l3_group, b);
  });
  for (const CoreId core : result.cores) {
    result.cpus.insert(result.cpus.end(), picked[core].begin(), picked[core].end());
  }
  return result;
}

}  // namespace larder::pipeline::plan
