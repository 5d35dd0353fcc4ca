// Turns hwloc's tree into the snapshot.
#include "topology/topology.h"

#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "topology/affinity.h"
#include "topology/sysfs.h"

namespace larder::topology {
namespace {

constexpr const char* kNodeFolder = "/sys/devices/system/node";

using Tree = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

Tree NewTree() {
  hwloc_topology_t tree = nullptr;
  if (hwloc_topology_init(&tree) != 0)
    throw Error("topology: hwloc cannot start; is memory exhausted?");
  return Tree(tree, hwloc_topology_destroy);
}

const char* Info(hwloc_obj_t object, const char* name) {
  for (; object != nullptr; object = object->parent) {
    if (const char* value = hwloc_obj_get_info_by_name(object, name)) return value;
  }
  return nullptr;
}

// The CPUs that sched_setaffinity allows us. hwloc has already left out what the cgroup forbids.
std::set<int> AffinityCpus() {
  std::set<int> cpus;
  for (const CpuId cpu : GetAffinity(pthread_self())) cpus.insert(cpu.value);
  return cpus;
}

}  // namespace

class TopologyBuilder {
 public:
  TopologyBuilder(hwloc_topology_t tree, std::string source, bool from_xml) : tree_(tree) {
    t_.source_ = std::move(source);
    t_.from_xml_ = from_xml;
  }

  void Warn(std::string text) { t_.warnings_.push_back(std::move(text)); }

  Topology Build(const std::set<int>& allowed) {
    AddNodes();
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    if (hwloc_get_nbobjs_by_type(tree_, HWLOC_OBJ_CORE) <= 0) {
      type = HWLOC_OBJ_PU;
      Warn("no cores are described; each CPU is taken as a core");
    }
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(tree_, type, o)) != nullptr;)
      AddCore(o, allowed);
    if (t_.cores_.empty())
      throw Error("topology: {}: no CPU that this process may use", t_.source_);
    WarnAboutGaps();
    return std::move(t_);
  }

 private:
  void AddNodes() {
    for (hwloc_obj_t o = nullptr;
         (o = hwloc_get_next_obj_by_type(tree_, HWLOC_OBJ_NUMANODE, o)) != nullptr;) {
      NumaNode node;
      node.id = NumaNodeId(static_cast<int32_t>(o->os_index));
      node.memory_bytes = o->attr != nullptr ? o->attr->numanode.local_memory : 0;
      t_.numa_nodes_.push_back(std::move(node));
    }
    if (t_.numa_nodes_.empty()) {
      t_.numa_nodes_.push_back({NumaNodeId(0), 0, {}});
      Warn("no NUMA nodes are described; one node 0 is assumed");
    }
    // With one node, the machine's figure is the node's, and it is right even where the node's
    // leaves out hot-plugged memory.
    if (t_.numa_nodes_.size() == 1 && !t_.from_xml_) {
      if (const auto total = FindBytes(ReadWhole("/proc/meminfo"), "MemTotal"))
        t_.numa_nodes_[0].memory_bytes = *total;
    }
  }

  // hwloc orders a core's nodeset by number; the lowest with memory is the ordinary one (DDR before
  // HBM, CXL).
  NumaNode& NodeOf(hwloc_obj_t core) {
    NumaNode* without_memory = nullptr;
    for (NumaNode& node : t_.numa_nodes_) {
      if (core->nodeset == nullptr ||
          !hwloc_bitmap_isset(core->nodeset, static_cast<unsigned>(node.id.value)))
        continue;
      if (node.memory_bytes > 0) return node;
      if (without_memory == nullptr) without_memory = &node;
    }
    return without_memory != nullptr ? *without_memory : t_.numa_nodes_.front();
  }

  int PackageOf(hwloc_obj_t core) {
    hwloc_obj_t object = hwloc_get_ancestor_obj_by_type(tree_, HWLOC_OBJ_PACKAGE, core);
    const auto [it, fresh] =
        package_index_.try_emplace(object, static_cast<int>(t_.packages_.size()));
    if (fresh) {
      Package package;
      if (const char* model = Info(object != nullptr ? object : core, "CPUModel"))
        package.cpu_model = model;
      while (!package.cpu_model.empty() && package.cpu_model.back() == ' ')
        package.cpu_model.pop_back();  // AMD pads
      t_.packages_.push_back(std::move(package));
    }
    return it->second;
  }

  L3GroupId GroupOf(hwloc_obj_t core, int package, NumaNodeId node) {
    hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(tree_, HWLOC_OBJ_L3CACHE, core);
    const auto [it, fresh] =
        group_index_.try_emplace({package, cache}, static_cast<int32_t>(t_.l3_groups_.size()));
    const L3GroupId id(it->second);
    if (fresh) {
      t_.l3_groups_.push_back(
          {id, cache != nullptr ? cache->attr->cache.size : 0, package, node, {}});
      t_.packages_[static_cast<size_t>(package)].l3_groups.push_back(id);
    }
    return id;
  }

  void AddCore(hwloc_obj_t object, const std::set<int>& allowed) {
    Core core;
    unsigned cpu = 0;
    hwloc_bitmap_foreach_begin(cpu, object->cpuset) {
      if (allowed.empty() || allowed.count(static_cast<int>(cpu)) != 0) {
        core.cpus.push_back(CpuId(static_cast<int32_t>(cpu)));
      }
    }
    hwloc_bitmap_foreach_end();
    if (core.cpus.empty()) return;
    core.id = CoreId(static_cast<int32_t>(t_.cores_.size()));
    NumaNode& node = NodeOf(object);
    core.numa_node = node.id;
    core.package = PackageOf(object);
    core.l3_group = GroupOf(object, core.package, node.id);
    hwloc_obj_t l2 = hwloc_get_ancestor_obj_by_type(tree_, HWLOC_OBJ_L2CACHE, object);
    core.l2_bytes = l2 != nullptr ? l2->attr->cache.size : 0;
    node.cores.push_back(core.id);
    t_.packages_[static_cast<size_t>(core.package)].cores.push_back(core.id);
    t_.l3_groups_[core.l3_group.index()].cores.push_back(core.id);
    t_.cores_.push_back(std::move(core));
  }

  void WarnAboutGaps() {
    for (const L3Group& group : t_.l3_groups_) {
      if (group.bytes != 0) continue;
      Warn(
          fmt::format("package {}: no L3 cache is described; its {} cores are taken as one group "
                      "with 0 bytes of L3",
                      group.package, group.cores.size()));
    }
    for (const NumaNode& node : t_.numa_nodes_) {
      if (node.memory_bytes == 0)
        Warn(fmt::format("NUMA node {}: the size of its memory is not known", node.id.value));
    }
    if (t_.numa_nodes_.size() == 1 && t_.packages_.size() > 1) {
      Warn(fmt::format(
          "one NUMA node for {} packages: memory is taken as equally far from all cores",
          t_.packages_.size()));
    }
  }

  hwloc_topology_t tree_;
  Topology t_;
  std::map<hwloc_obj_t, int> package_index_;
  std::map<std::pair<int, hwloc_obj_t>, int32_t> group_index_;
};

Topology Topology::Detect(Scope scope) {
  Tree tree = NewTree();
  if (scope == Scope::kAll)
    hwloc_topology_set_flags(tree.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  // hwloc (2.9, list_sysfsnode) aborts there. Without its reader of /sys it asks the CPUs.
  const bool no_node = ShowsNoNode(kNodeFolder);
  if (no_node)
    hwloc_topology_set_components(tree.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "linux");
  if (hwloc_topology_load(tree.get()) != 0) {
    throw Error("topology: hwloc cannot read this machine: {}; are /proc and /sys mounted?",
                std::strerror(errno));
  }
  // HWLOC_XMLFILE in the environment makes hwloc describe another machine
  if (!hwloc_topology_is_thissystem(tree.get())) {
    return TopologyBuilder(tree.get(), "the machine in HWLOC_XMLFILE", true).Build({});
  }
  TopologyBuilder builder(tree.get(), "this machine", false);
  if (no_node)
    builder.Warn(std::string(kNodeFolder) + " shows no NUMA node; one is assumed for all cores");
  return builder.Build(scope == Scope::kAll ? std::set<int>{} : AffinityCpus());
}

Topology Topology::FromXml(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) {
    throw Error("topology: {}: {}; expected an XML file written by `lstopo FILE.xml`", path,
                std::strerror(errno));
  }
  Tree tree = NewTree();
  if (hwloc_topology_set_xml(tree.get(), path.c_str()) != 0 ||
      hwloc_topology_load(tree.get()) != 0) {
    throw Error(
        "topology: {}: hwloc {} cannot read it; expected an XML file written by `lstopo FILE.xml`",
        path, HWLOC_VERSION);
  }
  return TopologyBuilder(tree.get(), path, true).Build({});
}

Topology Topology::FromSynthetic(const std::string& description, const std::set<int>& hidden) {
  Tree tree = NewTree();
  if (hwloc_topology_set_synthetic(tree.get(), description.c_str()) != 0 ||
      hwloc_topology_load(tree.get()) != 0) {
    throw Error(
        "topology: '{}': hwloc {} does not understand it; expected a description as for `lstopo "
        "--input`",
        description, HWLOC_VERSION);
  }
  std::set<int> seen;
  for (hwloc_obj_t o = nullptr;
       (o = hwloc_get_next_obj_by_type(tree.get(), HWLOC_OBJ_PU, o)) != nullptr;) {
    if (const int cpu = static_cast<int>(o->os_index); !hidden.contains(cpu)) seen.insert(cpu);
  }
  if (seen.empty()) throw Error("topology: '{}': all of its CPUs are hidden", description);
  return TopologyBuilder(tree.get(), description, true).Build(seen);
}

const Core& Topology::core(CoreId id) const {
  LARDER_CHECK(id.index() < cores_.size(), "core {} of {}", id.value, cores_.size());
  return cores_[id.index()];
}

const L3Group& Topology::l3_group(L3GroupId id) const {
  LARDER_CHECK(id.index() < l3_groups_.size(), "L3 group {} of {}", id.value, l3_groups_.size());
  return l3_groups_[id.index()];
}

size_t Topology::cpu_count() const {
  size_t count = 0;
  for (const Core& core : cores_) count += core.cpus.size();
  return count;
}

size_t Topology::total_l3_bytes() const {
  size_t bytes = 0;
  for (const L3Group& group : l3_groups_) bytes += group.bytes;
  return bytes;
}

}  // namespace larder::topology
