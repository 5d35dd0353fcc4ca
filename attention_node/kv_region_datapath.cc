#include <algorithm>

#include "attention_node/kv_region.h"

namespace larder::attention_node {

void KvRegion::Copy(const model::KvUpdate& update, size_t layer, size_t kv_head) const {
  const KvShape::Layer& of = shape_.layers[layer];
  const Chunk &chunk = chunks_[update.chunk], &source = chunks_[update.copied_from];
  if (chunk.of_class != of.of_class) return;
  const size_t pages = std::min(
      CeilDiv(size_t{update.copied_positions}, kernels::kValuePagePositions), shape_.value_pages);
  const KvChunk from = At(source.nth, of, kv_head), to = At(chunk.nth, of, kv_head);
  std::copy_n(from.keys, KvShape::kKeyPages * pages * of.key_page_bytes, to.keys);
  std::copy_n(from.values, pages * of.value_page_bytes, to.values);
}

}  // namespace larder::attention_node
