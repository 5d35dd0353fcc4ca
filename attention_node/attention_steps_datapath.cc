#include <algorithm>

#include "attention_node/attention_share.h"
#include "attention_node/attention_steps.h"
#include "base/range.h"
#include "kernels/formats/kv_page.h"
#include "model/layer/layer_spec.h"
#include "model/step/batch_rows.h"
#include "model/step/step_kind.h"
#include "threadpool/timeline.h"

namespace larder::attention_node {
namespace {

using kernels::ActBlock;
using kernels::kBlock;
using kernels::kChunkPositions;
using kernels::kPagePositions;
using kernels::kValuePagePositions;
using model::BatchRows;
using model::FirstSeen;
using model::StepKind;
using threadpool::EndLap;

// Queries and keys are cached and multiplied as Walsh-Hadamard transforms of their blocks: an
// element that is larger than the others is shared by all 32, instead of taking their bits. The
// product of two transforms is 32 times that of what they are made of.
constexpr float kQueryFactor = 1.0f / kBlock;

// Quantises a key to Q8_0 blocks with an f16 scale, the format of the KV cache.
inline void QuantizeKey(const AttentionShape& shape, const float* x, const float* balance,
                        ActBlock* act, model::Q8Block* out) {
  shape.elementwise->quantize_hadamard(x, balance, act, shape.head_size, 1.0f);
  for (size_t b = 0; b < shape.blocks; ++b) {
    out[b].d = model::F32ToF16(act[b].d);
    std::copy_n(act[b].q, kBlock, out[b].q);
  }
}

// Consecutive positions of one slot. shared_row is their first row in the shared buffers. A row
// that is split over threads is a tile of its own, and the tile has only some of its chunks.
struct Tile {
  size_t shared_row, rows;
  SlotId slot;
  size_t position, window;
  size_t begin_chunk, end_chunk;
  size_t end() const { return position + rows; }  // behind the last position that a row sees
  size_t first_chunk() const { return FirstSeen(window, position) / kChunkPositions; }
  size_t chunks() const { return CeilDiv(end(), kChunkPositions); }
  bool in_parts() const { return begin_chunk > first_chunk(); }  // another thread has begun the row
  bool split() const { return in_parts() || end_chunk < chunks(); }
  // How many rows see something before `at`: the first ones.
  size_t RowsThatSeeBefore(size_t at) const {
    if (at == 0) return 0;
    if (window == 0) return rows;
    const size_t last = at + window - 1;  // the last position that sees at - 1, and 1
    return last > position ? std::min(rows, last - position) : 0;
  }
};

// A and B of each pair of a query's head (model/config/key_bias.h), of which q is not scaled yet.
inline void BiasTerms(const AttentionShape& shape, const KeyBiasWaves& bias, const float* q,
                      float scale, float* terms) {
  for (size_t i = 0; i < bias.pairs; ++i) {
    const model::KeyBias::Pair& b = bias.pair[i];
    const float q0 = q[b.index] * scale;
    const float q1 = q[b.index + shape.rotary_dim / 2] * scale;
    terms[2 * i] = q0 * b.first + q1 * b.second;
    terms[2 * i + 1] = q1 * b.first - q0 * b.second;
  }
}

// Adds what K's bias gives to scores of a chunk that begins at `position`, for queries [begin, end)
// of the tile.
void AddBias(const AttentionOperand& op, size_t position, size_t in_chunk, size_t begin,
             size_t end) {
  const AttentionShape& shape = *op.shape;
  const size_t pairs = op.bias.pairs;
  const float* const rope = shape.rope + position * shape.rotary_dim;
  for (size_t q = begin; q < end; ++q) {
    const float* terms = op.scratch.terms + 2 * pairs * q;
    float* turned = op.scratch.turned + 2 * pairs * q;
    for (size_t i = 0; i < pairs; ++i) {
      const size_t at = op.bias.pair[i].index;
      const float cos = rope[at], sin = rope[at + shape.rotary_dim / 2];
      const float a = terms[2 * i], b = terms[2 * i + 1];
      turned[2 * i] = a * cos + b * sin;
      turned[2 * i + 1] = b * cos - a * sin;
    }
  }
  shape.elementwise->add_waves(op.scratch.scores + begin * shape.chunk_stride, shape.chunk_stride,
                               RoundUp(in_chunk, kPagePositions), end - begin,
                               op.scratch.turned + 2 * pairs * begin, 2 * pairs, op.bias.wave,
                               pairs);
}

inline float QueryScale(const AttentionShape& shape, size_t position) {
  if (shape.temperature == nullptr) return shape.query_scale;
  return shape.query_scale * shape.temperature[position];
}

inline void NormHead(const AttentionShape& shape, const float* weights, float* head) {
  shape.norms(&head, weights, &head, 1, shape.head_size, shape.epsilon);
}

// Norm, rotation, scale and quantisation of the tile's queries, ordered by row, then by head.
void QuantizeQueries(const AttentionOperand& op, const Tile& tile) {
  const AttentionShape& shape = *op.shape;
  const kernels::Elementwise& elementwise = *shape.elementwise;
  uint8_t* quantised = op.scratch.queries;
  for (size_t r = 0; r < tile.rows; ++r) {
    const float* rope = shape.rope + (tile.position + r) * shape.rotary_dim;
    const float scale = QueryScale(shape, tile.position + r);
    for (size_t h = 0; h < shape.group; ++h) {
      float* q = op.qkv + (tile.shared_row + r) * op.qkv_stride + h * shape.head_size;
      if (tile.split())
        q = std::copy_n(q, shape.head_size, op.scratch.query) - shape.head_size;  // others read q
      if (op.q_norm) NormHead(shape, op.q_norm + h * shape.q_norm_stride, q);
      if (shape.rotary_dim > 0) elementwise.rope(q, rope, shape.rotary_dim / 2);
      if (op.q_norm_after_rope) NormHead(shape, op.q_norm_after_rope, q);
      if (op.bias.pairs > 0)
        BiasTerms(shape, op.bias, q, scale,
                  op.scratch.terms + 2 * op.bias.pairs * (r * shape.group + h));
      elementwise.quantize_hadamard(q, op.bias.of_queries, reinterpret_cast<ActBlock*>(quantised),
                                    shape.head_size, scale * kQueryFactor);
      quantised += kernels::ActRowBytes(shape.blocks);
    }
  }
}

// Merges one chunk's result for queries [begin, end) of the tile into the running state.
void MergeChunk(const AttentionOperand& op, size_t begin, size_t end, const float* weighted,
                const float* max, const float* sum) {
  const AttentionShape& shape = *op.shape;
  const size_t padded = shape.value_blocks * kBlock;
  for (size_t q = begin; q < end; ++q) {
    shape.elementwise->merge(op.scratch.running + q * padded, &op.scratch.max[q],
                             &op.scratch.sum[q], weighted + q * padded, max[q], sum[q],
                             shape.value_size);
  }
}

void Finish(const AttentionOperand& op, size_t shared_row, size_t queries) {
  const AttentionShape& shape = *op.shape;
  for (size_t q = 0; op.sinks != nullptr && q < queries; q += shape.group)
    shape.elementwise->add_sinks(op.scratch.sum + q, op.scratch.max + q, op.sinks, shape.group);
  for (size_t q = 0; q < queries; ++q) {
    float* out = op.out + (shared_row + q / shape.group) * op.out_stride +
                 q % shape.group * shape.value_size;
    shape.elementwise->finish(op.scratch.running + q * shape.value_blocks * kBlock,
                              op.scratch.sum[q], out, shape.value_size);
    if (shape.gates == nullptr) continue;
    const float* const gate = op.qkv + (shared_row + q / shape.group) * op.qkv_stride +
                              (shape.group + 2 + q % shape.group) * shape.head_size;
    shape.gates->sigmoid_gate(out, gate, shape.head_size);
  }
}

// The weighted sums of a chunk's values, from page `first` to page `end`, for queries [begin,
// end_query) of the tile, into their rows of `weighted`. Meanwhile `next` is fetched.
void SumValues(const AttentionOperand& op, const KvChunk& kv, Range<size_t> pages,
               Range<size_t> of_queries, float* weighted, const KvChunk& next) {
  const AttentionShape& shape = *op.shape;
  const size_t page_bytes = shape.kv->shape().layers[op.layer].value_page_bytes;
  const uint8_t* const values = kv.values + pages.begin * page_bytes;
  for (size_t q = of_queries.begin; q < of_queries.end; q += shape.max_values_queries) {
    const size_t n = std::min(shape.max_values_queries, of_queries.end - q);
    shape.elementwise->quantize_weights(
        op.scratch.scores + q * shape.chunk_stride + pages.begin * kValuePagePositions,
        shape.chunk_stride, values, page_bytes, op.scratch.weights, pages.count(), n);
    shape.values[n](values, op.scratch.weights, weighted + q * shape.value_blocks * kBlock,
                    pages.count(), next.keys, next.values);
  }
}

// Attention for one tile: finished, if the tile has all chunks; left in the running state, if it
// begins with its rows' first chunk; else chunk by chunk in this thread's parts.
void RunTile(const AttentionOperand& op, const Tile& tile) {
  const AttentionShape& shape = *op.shape;
  const AttentionScratch& scratch = op.scratch;
  const kernels::Elementwise& elementwise = *shape.elementwise;
  const size_t key_page_bytes = shape.kv->shape().layers[op.layer].key_page_bytes;
  const size_t queries = tile.rows * shape.group;
  const size_t query_bytes = kernels::ActRowBytes(shape.blocks);
  QuantizeQueries(op, tile);
  EndLap(StepKind::kQueries);

  for (size_t c = tile.begin_chunk; c < tile.end_chunk; ++c) {
    const size_t chunk = c * kChunkPositions;  // its first position
    const size_t in_chunk = std::min(kChunkPositions, tile.end() - chunk);
    // Rows before this chunk's start do not see it, nor do those whose window begins behind it.
    // Of the others, the later ones begin with it.
    const size_t first_row = chunk > tile.position ? chunk - tile.position : 0;
    const size_t end_row = tile.RowsThatSeeBefore(chunk + kChunkPositions);
    const size_t first_query = first_row * shape.group, end_query = end_row * shape.group;
    const size_t new_query = tile.RowsThatSeeBefore(chunk) * shape.group;
    const auto first_seen = [&](size_t row) {  // in the chunk
      const size_t first = FirstSeen(tile.window, tile.position + row);
      return first > chunk ? first - chunk : 0;
    };
    // Pages before what the first of the rows sees are skipped, but not where a bias is added to
    // their scores.
    const size_t skipped = op.bias.pairs > 0 ? 0 : first_seen(first_row) / kValuePagePositions;
    const size_t skipped_keys = skipped * KvShape::kKeyPages;
    const size_t pages = CeilDiv(in_chunk, kPagePositions);
    const size_t value_pages = CeilDiv(in_chunk, kValuePagePositions);
    const KvChunk kv = shape.kv->chunk(tile.slot, c, op.layer, op.kv_head);
    float* const scores = scratch.scores + skipped * kValuePagePositions;
    shape.scores->Run(
        kv.keys + skipped_keys * key_page_bytes,
        reinterpret_cast<const ActBlock*>(scratch.queries + first_query * query_bytes),
        scores + first_query * shape.chunk_stride, pages - skipped_keys, end_query - first_query);
    if (op.bias.pairs > 0) AddBias(op, chunk, in_chunk, first_query, end_query);
    for (size_t q = first_query; shape.score_cap != 0.0f && q < end_query; ++q)
      elementwise.cap(scores + q * shape.chunk_stride, in_chunk - skipped * kValuePagePositions,
                      shape.score_cap);
    EndLap(StepKind::kScores);
    // A row's first chunk sets its running state, later chunks are merged into it; parts are merged
    // later.
    float chunk_max[kMaxTileQueries], chunk_sum[kMaxTileQueries];
    float *weighted = scratch.chunk, *max = chunk_max, *sum = chunk_sum;
    if (tile.in_parts()) {
      weighted = op.parts[op.thread] + (c - tile.begin_chunk) * shape.part_floats();
      max = weighted + queries * shape.value_blocks * kBlock;
      sum = max + queries;
    }
    for (size_t r = first_row; r < end_row; ++r) {  // the queries of a row see the same positions
      const size_t visible = std::min(in_chunk, tile.position + r + 1 - chunk), q = r * shape.group;
      const size_t before = skipped * kValuePagePositions;
      const bool begins = q >= new_query;
      elementwise.softmax_chunk(scores + q * shape.chunk_stride, shape.chunk_stride, shape.group,
                                first_seen(r) - before, visible - before,
                                value_pages * kValuePagePositions - before,
                                (begins ? scratch.max : max) + q, (begins ? scratch.sum : sum) + q);
    }
    EndLap(StepKind::kSoftmax);
    // While this chunk's values are summed, the next one is fetched.
    const KvChunk next =
        c + 1 == tile.end_chunk ? kv : shape.kv->chunk(tile.slot, c + 1, op.layer, op.kv_head);
    SumValues(op, kv, {skipped, value_pages}, {first_query, new_query}, weighted, next);
    SumValues(op, kv, {skipped, value_pages}, {new_query, end_query}, scratch.running, next);
    EndLap(StepKind::kValues);
    if (!tile.in_parts() && first_query < new_query) {
      MergeChunk(op, first_query, new_query, weighted, max, sum);
      EndLap(StepKind::kMerge);
    }
  }
  if (!tile.split()) Finish(op, tile.shared_row, queries);
  EndLap(StepKind::kMerge);
}

WorkPoint WorkBegin(const AttentionOperand& op, const BatchRows& rows, size_t thread) {
  return attention_node::WorkBegin(rows, op.shape->kv_heads, op.shape->window, thread, op.threads);
}

}  // namespace

void AppendStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const AppendOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const AttentionShape& shape = *op.shape;
  const KvShape::Layer& kv = shape.kv->shape().layers[op.layer];
  for (uint32_t i = 0; i < rows.kv_updates; ++i) {
    if (rows.kv_update[i].copied_positions > 0)
      shape.kv->Copy(rows.kv_update[i], op.layer, op.kv_head);
  }
  model::Q8Block blocks[kMaxHeadBlocks];
  int8_t value[kMaxHeadBlocks * kBlock] = {};  // those past the head's size stay 0
  for (uint32_t m = 0; m < rows.rows; ++m) {
    float* k = op.qkv + (rows.first_row + m) * op.qkv_stride + shape.group * shape.head_size;
    float* v = k + (shape.latent() ? shape.rotary_dim : shape.head_size);
    const size_t position = rows.position[m];
    const size_t in_chunk = position % kChunkPositions;
    const KvChunk at =
        shape.kv->chunk(rows.slot[m], position / kChunkPositions, op.layer, op.kv_head);
    if (op.k_norm) NormHead(shape, op.k_norm, k);
    if (shape.rotary_dim > 0)
      shape.elementwise->rope(k, shape.rope + position * shape.rotary_dim, shape.rotary_dim / 2);
    if (op.k_norm_after_rope) NormHead(shape, op.k_norm_after_rope, k);
    QuantizeKey(shape, k, op.balance, op.scratch.act, blocks);
    kernels::PackKey(blocks, shape.blocks, in_chunk % kPagePositions,
                     at.keys + in_chunk / kPagePositions * kv.key_page_bytes);
    if (shape.value_norm)
      shape.elementwise->rms_norm(v, shape.value_norm, v, shape.head_size, shape.epsilon);
    float scale;
    shape.elementwise->quantize_row(v, value, &scale, shape.value_size);
    kernels::PackValue({shape.value_blocks}, value, model::F32ToF16(scale),
                       in_chunk % kValuePagePositions,
                       at.values + in_chunk / kValuePagePositions * kv.value_page_bytes);
  }
}

void AttentionStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const AttentionOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const AttentionShape& shape = *op.shape;
  const auto head = static_cast<uint32_t>(op.kv_head);
  const WorkPoint begin = std::max(WorkPoint{head, 0, 0}, WorkBegin(op, rows, op.thread));
  const WorkPoint end = std::min(WorkPoint{head + 1, 0, 0}, WorkBegin(op, rows, op.thread + 1));
  const size_t tile_rows = std::max<size_t>(1, shape.tile_queries / shape.group);
  for (WorkPoint at = begin; at < end && at.row < rows.rows;) {
    const uint32_t m = at.row;
    const bool ends_here = end.head == head && end.row == m;  // end.chunk > 0: at < end
    Tile tile{.shared_row = rows.first_row + m,
              .rows = 1,
              .slot = rows.slot[m],
              .position = rows.position[m],
              .window = shape.window,
              .begin_chunk = 0,
              .end_chunk = 0};
    tile.begin_chunk = tile.first_chunk() + at.chunk;
    tile.end_chunk = ends_here ? tile.first_chunk() + end.chunk : tile.chunks();
    if (!tile.split()) {
      const uint32_t whole_rows = end.head == head ? end.row : rows.rows;
      // Of rows whose logits are wanted, some may be missing between two of a slot.
      while (tile.rows < tile_rows && m + tile.rows < whole_rows &&
             rows.slot[m + tile.rows] == tile.slot &&
             rows.position[m + tile.rows] == tile.position + tile.rows)
        ++tile.rows;
      tile.end_chunk = tile.chunks();
    }
    RunTile(op, tile);
    at = {head, m + static_cast<uint32_t>(tile.rows), 0};
  }
}

bool NeedsMerge(const void* operand, const void* batch) {
  const auto& op = *static_cast<const AttentionOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const WorkPoint begin = WorkBegin(op, rows, op.thread);
  const WorkPoint end = WorkBegin(op, rows, op.thread + 1);
  return end.chunk > 0 && end.head == op.kv_head && begin <= WorkPoint{end.head, end.row, 0};
}

void MergeStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const AttentionOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const AttentionShape& shape = *op.shape;
  uint32_t thread = op.thread + 1;  // whose part goes on
  WorkPoint begin = WorkBegin(op, rows, thread);
  const uint32_t row = begin.row, chunks = ContextChunks(rows, row, shape.window);
  while (begin.row == row && begin.chunk > 0) {
    const WorkPoint end = WorkBegin(op, rows, thread + 1);
    const bool ends_here = end.head == op.kv_head && end.row == row;
    const float* part = op.parts[thread];
    for (uint32_t c = begin.chunk; c < (ends_here ? end.chunk : chunks);
         ++c, part += shape.part_floats()) {
      const float* max = part + shape.group * shape.value_blocks * kBlock;
      MergeChunk(op, 0, shape.group, part, max, max + shape.group);
    }
    if (!ends_here) break;
    begin = end;
    ++thread;
  }
  Finish(op, rows.first_row + row, shape.group);
  EndLap(StepKind::kMerge);
}

}  // namespace larder::attention_node
