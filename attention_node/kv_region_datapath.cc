#include <algorithm>

#include "attention_node/kv_region.h"

namespace larder::attention_node {

void KvRegion::Copy(const model::KvUpdate& update, size_t layer, size_t kv_head) const {
  const size_t pages = std::min(
      CeilDiv(size_t{update.copied_positions}, kernels::kValuePagePositions), shape_.value_pages);
  const KvChunk from = At(update.copied_from, layer, kv_head),
                to = At(update.chunk, layer, kv_head);
  std::copy_n(from.keys, KvShape::kKeyPages * pages * shape_.key_page_bytes, to.keys);
  std::copy_n(from.values, pages * shape_.value_page_bytes, to.values);
}

}  // namespace larder::attention_node
