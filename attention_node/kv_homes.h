// KvHomes: the NUMA node of each part of a socket's KV memory: that of the thread that writes it.
// Where several threads attend to a KV head, the node that most of them are on: the others read it
// from there. A pure function of the model, the socket's threads and their nodes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "attention_node/kv_region.h"
#include "base/ids.h"
#include "model/config/config.h"

namespace larder::attention_node {

// Where a thread's memory lies. Empty: anywhere.
inline NumaNodeId NodeOf(const std::vector<NumaNodeId>& node_of_thread, size_t thread) {
  return node_of_thread.empty() ? NumaNodeId{} : node_of_thread.at(thread);
}

class KvHomes {
 public:
  KvHomes(const model::ModelConfig& config, size_t threads,
          const std::vector<NumaNodeId>& node_of_thread)
      : config_(config), threads_(threads), node_of_thread_(node_of_thread) {}
  NumaNodeId operator()(const KvShape::Part&) const;
  // What the region of this shape has on each node.
  std::map<NumaNodeId, uint64_t> Bytes(const KvShape&) const;

 private:
  const model::ModelConfig& config_;  // outlives it, as does node_of_thread
  const size_t threads_;
  const std::vector<NumaNodeId>& node_of_thread_;
};

}  // namespace larder::attention_node
