#include "pipeline/manifest/cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace larder::pipeline::inline manifest {
namespace {

using topology::Core;
using topology::Topology;

// Beyond any machine; the limit keeps a mistyped range from allocating gigabytes.
constexpr int kMaxNumber = 65535;

struct KindName {
  const char* name;
  CoreSet::Kind kind;
};
constexpr KindName kKinds[] = {{"package", CoreSet::Kind::kPackage},
                               {"l3", CoreSet::Kind::kL3},
                               {"numa", CoreSet::Kind::kNuma},
                               {"cores", CoreSet::Kind::kCores},
                               {"cpus", CoreSet::Kind::kCpus}};

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

std::optional<int> Number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text.front() == '-' || error != std::errc() ||
      end != text.data() + text.size())
    return {};
  if (value > kMaxNumber) return {};
  return value;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// "0-3, 8"
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

std::optional<CoreSet> ParseCoreSet(std::string_view text, std::string* problem) {
  text = Trim(text);
  CoreSet set;
  if (text == "all") return set;
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const auto* known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const KindName& k) { return k.name == kind; });
  if (colon == text.npos || known == std::end(kKinds)) {
    *problem = "not a set of cores";
    return {};
  }
  set.kind = known->kind;
  std::set<int> numbers;
  std::string_view rest = text.substr(colon + 1);
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    more = comma != rest.npos;
    const std::string_view term = Trim(rest.substr(0, comma));
    if (more) rest.remove_prefix(comma + 1);
    if (term.empty()) {
      *problem = "a number is missing: the set is empty or has a comma too many";
      return {};
    }
    const size_t dash = term.find('-');
    const auto first = Number(Trim(term.substr(0, dash)));
    const auto last = dash == term.npos ? first : Number(Trim(term.substr(dash + 1)));
    if (!first || !last) {
      *problem = fmt::format("'{}' is neither a number up to {} nor a range", term, kMaxNumber);
      return {};
    }
    if (*last < *first) {
      *problem = fmt::format("the range {} runs backwards", term);
      return {};
    }
    for (int n = *first; n <= *last; ++n) {
      if (!numbers.insert(n).second) {
        *problem = fmt::format("{} is in it twice", n);
        return {};
      }
    }
  }
  set.numbers.assign(numbers.begin(), numbers.end());
  return set;
}

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

}  // namespace larder::pipeline::manifest
