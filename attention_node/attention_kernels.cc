#include "attention_node/attention_kernels.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/formats/kv_page.h"

namespace larder::attention_node {

using kernels::kChunkStride;

void CheckHeads(const std::string& model, size_t head_size, size_t group) {
  constexpr size_t kMaxHeadSize = kMaxHeadBlocks * kernels::kBlock;
  if (head_size <= kMaxHeadSize && group <= kMaxTileQueries) return;
  throw Error(
      "{}: {} query heads a KV head of {} elements; this build handles up to {} of up to {}", model,
      group, head_size, kMaxTileQueries, kMaxHeadSize);
}

kernels::GemmShape ScoresShape(size_t blocks) {
  return {.panel = {blocks, kernels::kKeyPanel},
          .x_stride_bytes = kernels::ActRowBytes(blocks),
          .y_stride_bytes = kChunkStride * sizeof(float)};
}

size_t TileQueries(const kernels::AttentionTuning& tuning, size_t group) {
  return std::max(tuning.tile_queries, group);
}

size_t ValuesQueries(const kernels::AttentionTuning& tuning, size_t group) {
  return std::min(tuning.value_queries, TileQueries(tuning, group));
}

void AddValueKernels(kernels::Isa isa, size_t blocks, size_t max_queries,
                     const kernels::AttentionTuning& tuning,
                     std::vector<kernels::ValuesFn>& values) {
  if (values.empty()) values.push_back(nullptr);
  for (size_t n = values.size(); n <= max_queries; ++n) {
    const kernels::ValuesShape shape{
        .blocks = blocks, .queries = n, .o_stride = blocks * kernels::kBlock};
    values.push_back(kernels::MakeValues(isa, shape, tuning));
  }
}

}  // namespace larder::attention_node
