#include <algorithm>

#include "attention_node/attention_steps.h"
#include "kernels/formats/kv_page.h"
#include "model/layer/batch_rows.h"
#include "model/layer/step_kind.h"
#include "threadpool/share.h"
#include "threadpool/timeline.h"

namespace larder::attention_node {
namespace {

using kernels::ActBlock;
using kernels::kBlock;
using kernels::kChunkPositions;
using kernels::kPagePositions;
using model::BatchRows;
using model::StepKind;
using threadpool::EndLap;

// Quantises a head's elements to Q8_0 blocks with an f16 scale, the format of the KV cache.
inline void QuantizeHead(const AttentionShape& shape, const float* x, ActBlock* act, model::Q8Block* out) {
  shape.elementwise->quantize(x, act, shape.head_size);
  for (size_t b = 0; b < shape.blocks; ++b) {
    out[b].d = model::F32ToF16(act[b].d);
    std::copy_n(act[b].q, kBlock, out[b].q);
  }
}

// Consecutive positions of one slot. shared_row is their first row in the shared buffers.
struct Tile {
  size_t shared_row, rows;
  SlotId slot;
  size_t position;
};

// Attention for one tile. Queries are ordered by row, then by head.
void RunTile(const AttentionOperand& op, const Tile& tile) {
  const AttentionShape& shape = *op.shape;
  const AttentionScratch& scratch = op.scratch;
  const kernels::Elementwise& elementwise = *shape.elementwise;
  const size_t queries = tile.rows * shape.group;
  const size_t padded_head = shape.blocks * kBlock;
  const size_t query_bytes = kernels::ActRowBytes(shape.blocks);

  for (size_t r = 0; r < tile.rows; ++r) {
    const float* rope = shape.rope + (tile.position + r) * shape.rotary_dim;
    for (size_t h = 0; h < shape.group; ++h) {
      float* q = op.qkv + (tile.shared_row + r) * op.qkv_stride + h * shape.head_size;
      if (op.q_norm) elementwise.rms_norm(q, op.q_norm, q, shape.head_size, shape.epsilon);
      elementwise.rope(q, rope, shape.rotary_dim / 2);
      for (size_t i = 0; i < shape.head_size; ++i) q[i] *= shape.query_scale;
      elementwise.quantize(q,
                           reinterpret_cast<ActBlock*>(scratch.queries + (r * shape.group + h) * query_bytes),
                           shape.head_size);
    }
  }

  EndLap(StepKind::kQueries);

  const size_t end = tile.position + tile.rows;  // number of positions that the last row sees
  for (size_t chunk = 0; chunk < end; chunk += kChunkPositions) {
    const size_t in_chunk = std::min(kChunkPositions, end - chunk);
    const size_t pages = CeilDiv(in_chunk, kPagePositions);
    const size_t padded = pages * kPagePositions;
    const KvChunk kv = shape.kv->chunk(tile.slot, chunk / kChunkPositions, op.layer, op.kv_head);
    // Rows before this chunk's start do not see it; the tile's later rows do.
    const size_t first_row = chunk > tile.position ? chunk - tile.position : 0;
    const size_t first_query = first_row * shape.group;
    shape.scores->Run(kv.keys, reinterpret_cast<const ActBlock*>(scratch.queries + first_query * query_bytes),
                      scratch.scores + first_query * shape.chunk_stride, pages, queries - first_query);
    EndLap(StepKind::kScores);
    float chunk_max[kMaxTileQueries], chunk_sum[kMaxTileQueries];
    for (size_t r = first_row; r < tile.rows; ++r) {  // the queries of a row see as many positions
      const size_t visible = std::min(in_chunk, tile.position + r + 1 - chunk), q = r * shape.group;
      elementwise.softmax_chunk(scratch.scores + q * shape.chunk_stride, shape.chunk_stride, shape.group,
                                visible, padded, &chunk_max[q], &chunk_sum[q]);
    }
    EndLap(StepKind::kSoftmax);
    elementwise.scale_weights(scratch.scores + first_query * shape.chunk_stride, kv.values,
                              scratch.weights + first_query * shape.blocks * shape.chunk_stride, shape.blocks,
                              padded, shape.chunk_stride, queries - first_query);
    // While this chunk's values are summed, the next one is fetched.
    const bool last = chunk + kChunkPositions >= end;
    const KvChunk next =
        last ? kv : shape.kv->chunk(tile.slot, chunk / kChunkPositions + 1, op.layer, op.kv_head);
    // The first chunk sets the running state; later chunks are merged into it.
    float* weighted = chunk == 0 ? scratch.running : scratch.chunk;
    for (size_t q = first_query; q < queries; q += shape.max_values_queries) {
      const size_t n = std::min(shape.max_values_queries, queries - q);
      shape.values[n](kv.values, scratch.weights + q * shape.blocks * shape.chunk_stride,
                      weighted + q * padded_head, in_chunk, next.keys, next.values);
    }
    EndLap(StepKind::kValues);
    for (size_t q = first_query; q < queries; ++q) {
      if (chunk == 0) {
        scratch.max[q] = chunk_max[q];
        scratch.sum[q] = chunk_sum[q];
      } else {
        elementwise.merge(scratch.running + q * padded_head, &scratch.max[q], &scratch.sum[q],
                          scratch.chunk + q * padded_head, chunk_max[q], chunk_sum[q], shape.head_size);
      }
    }
    EndLap(StepKind::kMerge);
  }
  for (size_t q = 0; q < queries; ++q) {
    float* out =
        op.out + (tile.shared_row + q / shape.group) * op.out_stride + q % shape.group * shape.head_size;
    elementwise.finish(scratch.running + q * padded_head, scratch.sum[q], out, shape.head_size);
  }
  EndLap(StepKind::kMerge);
}

}  // namespace

void AppendStep(const void* operand, void* frame) {
  const auto& op = *static_cast<const AppendOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(frame);
  const AttentionShape& shape = *op.shape;
  const KvShape& kv = shape.kv->shape();
  model::Q8Block blocks[kMaxHeadBlocks];
  for (uint32_t m = 0; m < rows.rows; ++m) {
    float* k = op.qkv + (rows.first_row + m) * op.qkv_stride + shape.group * shape.head_size;
    const float* v = k + shape.head_size;
    const size_t position = rows.position[m];
    const size_t page = position % kChunkPositions / kPagePositions, in_page = position % kPagePositions;
    const KvChunk at = shape.kv->chunk(rows.slot[m], position / kChunkPositions, op.layer, op.kv_head);
    if (op.k_norm) shape.elementwise->rms_norm(k, op.k_norm, k, shape.head_size, shape.epsilon);
    shape.elementwise->rope(k, shape.rope + position * shape.rotary_dim, shape.rotary_dim / 2);
    QuantizeHead(shape, k, op.scratch.act, blocks);
    kernels::kKeyPanel.pack_row(blocks, shape.blocks, in_page, at.keys + page * kv.key_page_bytes);
    QuantizeHead(shape, v, op.scratch.act, blocks);
    kernels::PackValue({shape.blocks}, blocks, in_page, at.values + page * kv.value_page_bytes);
  }
}

void AttentionStep(const void* operand, void* frame) {
  const auto& op = *static_cast<const AttentionOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(frame);
  const AttentionShape& shape = *op.shape;
  // (KV head, row) pairs are ordered by head; take this thread's share of them, cut to this head.
  const Range<uint32_t> share =
      threadpool::ShareOf(static_cast<uint32_t>(shape.kv_heads * rows.rows), op.thread, op.threads);
  const auto head_begin = static_cast<uint32_t>(op.kv_head * rows.rows);
  const uint32_t begin = std::max(share.begin, head_begin);
  const uint32_t end = std::min(share.end, head_begin + rows.rows);
  const size_t tile_rows = std::max<size_t>(1, shape.tile_queries / shape.group);
  for (uint32_t u = begin; u < end;) {
    const uint32_t m = u - head_begin;
    uint32_t n = 1;
    while (n < tile_rows && u + n < end && rows.slot[m + n] == rows.slot[m]) ++n;
    RunTile(op, Tile{rows.first_row + m, n, rows.slot[m], rows.position[m]});
    u += n;
  }
}

}  // namespace larder::attention_node
