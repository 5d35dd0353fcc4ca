#include "attention_node/kv_homes.h"

#include <algorithm>

#include "attention_node/attention_share.h"

namespace larder::attention_node {

NumaNodeId KvHomes::operator()(const KvShape::Part& part) const {
  const model::LayerSpec& layer = config_.layer(part.layer);
  if (part.state) {
    const size_t nth = model::NthValueHead(layer, part.head);
    return NodeOf(node_of_thread_, OwnerOfState(layer, nth, threads_));
  }
  const Range<size_t> owners = OwnersOfGroup(layer, part.head, threads_);
  std::map<NumaNodeId, size_t> threads;
  for (size_t t = owners.begin; t < owners.end; ++t) ++threads[NodeOf(node_of_thread_, t)];
  return std::ranges::max_element(threads, {}, [](const auto& of) { return of.second; })->first;
}

std::map<NumaNodeId, uint64_t> KvHomes::Bytes(const KvShape& shape) const {
  std::vector<uint64_t> chunks(shape.classes.size(), 0);
  for (size_t i = 0; i < shape.pools.size(); ++i)
    chunks[i % shape.classes.size()] += shape.pools[i];
  std::map<NumaNodeId, uint64_t> bytes;
  for (const KvShape::Part& part : shape.parts)
    bytes[(*this)(part)] += chunks[part.of_class] * part.bytes;
  return bytes;
}

}  // namespace larder::attention_node
