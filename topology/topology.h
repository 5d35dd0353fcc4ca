// Topology: an immutable snapshot of a machine's packages, L3 groups, cores and NUMA nodes. It is
// taken once at start (or from an hwloc XML file, to plan another machine). Any thread may read it;
// it can be copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace larder::topology {

struct Core {
  CoreId id;        // index into Topology::cores()
  int package = 0;  // index into Topology::packages()
  L3GroupId l3_group;
  NumaNodeId numa_node;     // the nearest node with memory
  std::vector<CpuId> cpus;  // SMT siblings that this process may use; Larder runs on the first one
  size_t l2_bytes = 0;      // 0: not known
};

struct L3Group {
  L3GroupId id;      // index into Topology::l3_groups()
  size_t bytes = 0;  // 0: no L3 is known; the group is the whole package
  int package = 0;
  NumaNodeId numa_node;  // the node of its first core
  std::vector<CoreId> cores;
};

struct Package {
  std::string cpu_model;  // empty if not known
  std::vector<L3GroupId> l3_groups;
  std::vector<CoreId> cores;
};

struct NumaNode {
  NumaNodeId id;              // the operating system's number, not an index
  size_t memory_bytes = 0;    // 0: not known
  std::vector<CoreId> cores;  // may be empty: a node of memory only (CXL, GPU, persistent memory)
};

class Topology {
 public:
  // The machine we run on. kAllowed: only the CPUs that this process may use (affinity mask, cpuset
  // cgroup). kAll: all CPUs, the same for every process of the machine, however each is confined;
  // what several processes must agree on (a Plan) is computed from it.
  enum class Scope { kAllowed, kAll };
  static Topology Detect(Scope scope = Scope::kAllowed);
  // A file written by `lstopo file.xml` (hwloc 1.x or 2.x). Error if it cannot be read.
  static Topology FromXml(const std::string& path);
  // A machine from hwloc's description, as in `lstopo --input "package:2 l3:12(size=96MiB) core:8
  // pu:2"`, without the hidden CPUs (those that a hypervisor keeps for itself). Error if hwloc does
  // not understand it.
  static Topology FromSynthetic(const std::string& description, const std::set<int>& hidden = {});

  std::span<const Core> cores() const { return cores_; }
  std::span<const L3Group> l3_groups() const { return l3_groups_; }
  std::span<const Package> packages() const { return packages_; }
  std::span<const NumaNode> numa_nodes() const { return numa_nodes_; }
  const Core& core(CoreId id) const;
  const L3Group& l3_group(L3GroupId id) const;
  size_t cpu_count() const;  // all cores' cpus, SMT siblings included
  size_t total_l3_bytes() const;
  const std::string& source() const {
    return source_;
  }  // "this machine", the file's path or a description
  // From an XML file or a description. The CpuIds are then another machine's: never pin to them.
  bool from_xml() const { return from_xml_; }
  // One line for each thing that is not known, with what was assumed instead.
  std::span<const std::string> warnings() const { return warnings_; }

  // n cores for one thread each; SMT siblings stay unused. Takes the first packages, as few as hold
  // n cores, spreads the threads evenly over their L3 groups (so that each has as much L3 as
  // possible), and sorts by L3 group. If n is greater than the number of cores, it starts again
  // from the first. n >= 1.
  std::vector<CoreId> PickCores(size_t n) const;
  // The two operands of a thread pool: for each core its first CPU, and for each core the number of
  // its L3 group, counted from 0 in order of appearance.
  std::vector<CpuId> CpusOf(std::span<const CoreId> cores) const;
  std::vector<int> GroupsOf(std::span<const CoreId> cores) const;

  // A drawing in text, for the user.
  std::string Describe() const;

 private:
  friend class TopologyBuilder;
  Topology() = default;

  std::vector<Core> cores_;
  std::vector<L3Group> l3_groups_;
  std::vector<Package> packages_;
  std::vector<NumaNode> numa_nodes_;
  std::vector<std::string> warnings_;
  std::string source_;
  bool from_xml_ = false;
};

}  // namespace larder::topology
