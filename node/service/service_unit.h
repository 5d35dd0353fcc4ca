// The systemd drop-in of one socket: what larder@.service cannot know because it depends on the
// machine and the Plan. A pure function from facts to text, so that it can be tested for machines
// that are not at hand.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "node/service/unit_network.h"

namespace larder::node::inline service {

struct UnitFacts {
  std::string manifest, server, socket, role;
  std::string cores;                // as the manifest writes them
  std::vector<CpuId> cpus;          // one thread each
  std::vector<CpuId> link_cpus;     // of threads of links to sockets that share attention with it
  std::vector<NumaNodeId> nodes;    // nodes of those CPUs and of what the threads share; ascending
  std::vector<std::string> before;  // sockets of this server that this one connects to: they start
                                    // first
  uint64_t resident_bytes = 0;      // weights or KV cache of this socket; 0: unknown
  // For each of `nodes`: what all sockets of this server will keep there, and the node's memory.
  struct NodeMemory {
    uint64_t resident_bytes = 0, memory_bytes = 0;
  };
  std::map<int32_t, NodeMemory> node_memory;
  NetworkFacts network;
};

std::string UnitDropIn(const UnitFacts& facts);

// Formats numbers as ascending ranges, as systemd and the kernel write them: "0-5,8".
std::string RangeList(std::vector<int32_t> numbers);

}  // namespace larder::node::service
