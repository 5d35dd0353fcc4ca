// The sockets of a manifest on their machine: Resolve checks a server's sockets against its
// topology and says what a Plan needs of each: cores, CPUs, NUMA node, role. Pure functions, except
// that LoadTopology reads a file or this machine.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/config/config.h"
#include "pipeline/manifest/manifest.h"
#include "topology/topology.h"

namespace larder::pipeline::inline plan {

struct ResolvedSocket {
  std::string name;
  Role role = Role::kColocated;  // never kAuto
  std::vector<CoreId> cores;     // sorted by L3 group, then number; no core twice
  NumaNodeId node;        // where memory that the socket's threads share lies (KV slots, links)
  bool isolated = false;  // its cores run no other work: waiting threads may spin
  double l3_fraction = 0.75;
  size_t l3_sharers = 1;  // sockets with weights on the same L3 groups, including itself
  size_t slots = 0;       // 0 unless it holds KV

  bool smt = false;
  std::vector<CpuId> cpus;  // one thread per CPU, core by core; with smt siblings are adjacent
  std::string reason;       // why this role, for `larder plan`
  std::vector<std::string> joined;  // sockets of role auto whose cores became part of this one
};

// Resolves the sockets of `server`, one of the manifest's. config: the model's shape, for what
// depends on bytes (auto roles, L3 budgets); null: not known. Warnings, one line each, are appended
// unless `warnings` is null: cores in two sockets, a NUMA node other than the cores' own, weights
// larger than their L3 budget. The rules for role "auto" are in pipeline/manifest/roles.cc.
std::vector<ResolvedSocket> Resolve(const Manifest& manifest, const ServerSpec& server,
                                    const topology::Topology& topology,
                                    const model::ModelConfig* config,
                                    std::vector<std::string>* warnings);

// One end of the links between a weight socket and an attention socket of another server: a thread
// of this server's of the two (pipeline/stage/attention_link.h).
struct LinkThread {
  std::string socket;     // whose process has the thread
  std::string attention;  // equal to `socket` at the attention socket's end
  CpuId cpu;              // of a core that no socket has; not valid: none is left
};

// Those of the server, whose sockets Resolve has given. A core that no socket of the server has
// goes to one thread, the nearest one to the cores of its socket: in one L3 group, else in one
// package.
std::vector<LinkThread> LinkThreadsOf(const Manifest& manifest, const ServerSpec& server,
                                      std::span<const ResolvedSocket> sockets,
                                      const topology::Topology& topology);

// The topology of the server's own XML file, or of this machine.
topology::Topology LoadTopology(const Manifest& manifest, const ServerSpec& server);

}  // namespace larder::pipeline::plan
