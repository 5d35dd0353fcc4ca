#include "attention_node/kv_region.h"

namespace larder::attention_node {

KvRegion::KvRegion(const KvShape& shape, NumaNodeId node)
    : shape_(shape),
      chunk_bytes_(shape.chunk_bytes()),
      arena_(shape.bytes(), node),
      base_(reinterpret_cast<uint8_t*>(arena_.data())) {
  for (size_t i = 0; i < shape_.slots * shape_.chunks; ++i)
    table_.push_back(static_cast<uint32_t>(i % shape_.pool));
}

const char* KvRegion::Check(const model::KvUpdate& update) const {
  return update.Problem(shape_.slots, shape_.chunks, {0, shape_.pool});
}

}  // namespace larder::attention_node
