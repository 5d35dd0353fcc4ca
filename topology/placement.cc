// Topology's choice of cores, and its drawing.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "topology/topology.h"

namespace larder::topology {

std::vector<CoreId> Topology::PickCores(size_t n) const {
  LARDER_CHECK(n >= 1, "cores asked for: {}", n);
  std::vector<CoreId> picked;
  while (n - picked.size() >= cores_.size()) {
    for (const L3Group& group : l3_groups_)
      picked.insert(picked.end(), group.cores.begin(), group.cores.end());
  }
  const size_t rest = n - picked.size();
  if (rest == 0) return picked;

  size_t packages = 0;
  for (size_t held = 0; held < rest; ++packages) held += packages_[packages].cores.size();
  std::vector<CoreId> last;
  for (size_t depth = 0; last.size() < rest; ++depth) {  // a core of each group in turn
    for (const L3Group& group : l3_groups_) {
      if (static_cast<size_t>(group.package) >= packages || group.cores.size() <= depth) continue;
      if (last.size() < rest) last.push_back(group.cores[depth]);
    }
  }
  std::sort(last.begin(), last.end(), [this](CoreId a, CoreId b) {
    const L3GroupId group_a = core(a).l3_group, group_b = core(b).l3_group;
    return group_a != group_b ? group_a < group_b : a < b;
  });
  picked.insert(picked.end(), last.begin(), last.end());
  return picked;
}

std::vector<CpuId> Topology::CpusOf(std::span<const CoreId> cores) const {
  std::vector<CpuId> cpus;
  for (CoreId id : cores) cpus.push_back(core(id).cpus.front());
  return cpus;
}

std::vector<int> Topology::GroupsOf(std::span<const CoreId> cores) const {
  std::map<L3GroupId, int> dense;
  std::vector<int> groups;
  for (CoreId id : cores) {
    groups.push_back(
        dense.try_emplace(core(id).l3_group, static_cast<int>(dense.size())).first->second);
  }
  return groups;
}

namespace {

// 1.5 MB, 96 MB, 2304 MB, 189.1 GB
std::string Size(size_t bytes) {
  const double mb = static_cast<double>(bytes) / (1 << 20);
  if (mb < 1) return fmt::format("{} KB", bytes >> 10);
  if (mb < 4096) return fmt::format("{:.4g} MB", mb);
  return fmt::format("{:.4g} GB", mb / 1024);
}

// A core's CPUs: "3", or "3+67" with an SMT sibling.
std::string Cpus(const Core& core) {
  std::string text;
  for (CpuId cpu : core.cpus) text += fmt::format("{}{}", text.empty() ? "" : "+", cpu.value);
  return text;
}

const char* Plural(size_t n) { return n == 1 ? "" : "s"; }

}  // namespace

std::string Topology::Describe() const {
  size_t memory = 0;
  for (const NumaNode& node : numa_nodes_) memory += node.memory_bytes;
  std::string text = fmt::format(
      "{}: {} package{}, {} L3 group{} with {} in all, {} core{} ({} CPU{}), {} memory\n", source_,
      packages_.size(), Plural(packages_.size()), l3_groups_.size(), Plural(l3_groups_.size()),
      Size(total_l3_bytes()), cores_.size(), Plural(cores_.size()), cpu_count(),
      Plural(cpu_count()), memory != 0 ? Size(memory) : "unknown");
  for (size_t p = 0; p < packages_.size(); ++p) {
    text += fmt::format("package {}{}{}\n", p, packages_[p].cpu_model.empty() ? "" : "  ",
                        packages_[p].cpu_model);
    std::vector<NumaNodeId> shown;
    for (L3GroupId id : packages_[p].l3_groups) {
      const L3Group& group = l3_group(id);
      for (const NumaNode& node : numa_nodes_) {  // usually one; an L3 over several nodes is
                                                  // Intel's SNC
        const bool holds = std::any_of(group.cores.begin(), group.cores.end(),
                                       [&](CoreId c) { return core(c).numa_node == node.id; });
        if (!holds || std::find(shown.begin(), shown.end(), node.id) != shown.end()) continue;
        shown.push_back(node.id);
        text += fmt::format("  node {}  {}\n", node.id.value,
                            node.memory_bytes != 0 ? Size(node.memory_bytes) : "memory unknown");
      }
      text += fmt::format("    L3 {:<3} {:>7}  [", id.value,
                          group.bytes != 0 ? Size(group.bytes) : "none");
      for (size_t i = 0; i < group.cores.size(); ++i) {
        text += fmt::format("{}{}", i == 0 ? "" : " ", Cpus(core(group.cores[i])));
      }
      text += "]\n";
    }
  }
  for (const NumaNode& node : numa_nodes_) {
    if (node.cores.empty())
      text += fmt::format("node {}  {}, no cores\n", node.id.value, Size(node.memory_bytes));
  }
  for (const std::string& warning : warnings_) text += "note: " + warning + "\n";
  return text;
}

}  // namespace larder::topology
