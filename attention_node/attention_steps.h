// The steps of an attention socket and their operands, fixed at set-up. Their argument `batch` is a
// model::BatchRows. Rows of qkv are in weight_node's QKV order: per KV head its query heads, its
// key and its value, with AttentionIo::group_stride floats between KV heads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention_node/key_bias_table.h"
#include "attention_node/kv_region.h"
#include "kernels/formats/tuning.h"
#include "kernels/gemm/gemm.h"
#include "kernels/recurrent/recurrent.h"
#include "kernels/rows/elementwise.h"

namespace larder::attention_node {

// Limits of the steps' stack arrays, checked at set-up.
inline constexpr size_t kMaxTileQueries = kernels::AttentionTuning::kMaxTileQueries;
inline constexpr size_t kMaxHeadBlocks = 18;  // latent attention: 64 + 512 elements

// What all steps of a socket's layers of one kind share: shapes, kernels and tables.
struct AttentionShape {
  size_t head_size, rotary_dim, group;  // group: query heads of one KV head
  size_t kv_heads, blocks;              // blocks: of a key
  // Of a value, which follows its key in a row of qkv, or is its end: latent attention.
  size_t value_size, value_blocks;
  float epsilon;                       // epsilon of q/k norms
  float query_scale;                   // 1 / LayerSpec::attention_divisor
  float score_cap = 0.0f;              // LayerSpec::score_cap
  const float* value_norm = nullptr;   // [head_size] of 1: values are normalised; or null
  const float* rope;                   // [context][rotary_dim]: cos[half], sin[half]
  const float* temperature = nullptr;  // [context]: what multiplies queries; null: nothing does
  const kernels::Elementwise* elementwise;
  kernels::NormsFn norms = nullptr;  // of q and k, if they have any
  size_t q_norm_stride = 0;          // from the weights of a query head's norm to those of the next
  const kernels::Gemm* scores;       // query blocks x key pages
  size_t chunk_stride;               // floats between queries of scores
  size_t max_values_queries;
  const kernels::ValuesFn* values;  // [max_values_queries + 1]
  size_t tile_queries;              // the most queries of one tile: rows * group
  size_t bias_pairs = 0;            // the most pairs of any KV head
  size_t window = 0;                // LayerSpec::window
  // Whose sigmoid_gate multiplies the output by gates that follow the value in a row of qkv; null:
  // there are none.
  const kernels::Recurrent* gates = nullptr;
  const KvRegion* kv;
  // Floats of one chunk's result for a row that is split over threads: per query of the group its
  // weighted values [32 * value_blocks], then all maxima, then all sums.
  size_t part_floats() const { return group * (kernels::kBlock * value_blocks + 2); }
  bool latent() const { return value_size != head_size; }
};

// One thread's own memory for a tile of queries.
struct AttentionScratch {
  kernels::ActBlock* act;          // [blocks]
  uint8_t* queries;                // [tile_queries] rows of ActRowBytes(blocks)
  float* scores;                   // [tile_queries][chunk_stride]
  kernels::ChunkWeights* weights;  // [max_values_queries]
  float* chunk;                    // [tile_queries][32 * value_blocks]: one chunk's weighted values
  float* running;                  // [tile_queries][32 * value_blocks]
  float* max;                      // [tile_queries]
  float* sum;                      // [tile_queries]
  float* query;                    // [32 * blocks]
  float* terms;                    // [tile_queries][2 * bias_pairs]: A, B of each pair
  float* turned;                   // the same: A', B' of a chunk
};

// Makes the copies of the micro-batch's KvUpdates for one KV head, then appends the keys and values
// of all its rows: (norm), rotate, (norm), quantise (keys as Walsh-Hadamard transforms of their
// blocks), store in the KV region.
struct AppendOperand {
  const AttentionShape* shape;
  AttentionScratch scratch;
  float* qkv;  // first column of this group
  size_t qkv_stride;
  const float* k_norm;                       // [head_size] or null
  const float* k_norm_after_rope = nullptr;  // the same
  const float* balance;                      // [head_size] or null: KeyBiasWaves::of_keys
  size_t layer, kv_head;
};
void AppendStep(const void* operand, void* batch);

// Attention for this thread's part of the micro-batch (attention_share.h), cut to the query heads
// of one KV head. For each tile of consecutive rows of one slot, chunk by chunk (kChunkPositions):
// softmax over scores, then weighted values, merged in ascending order (flash attention's
// recurrence). A row begins with the first chunk of which it sees something; a weight outside what
// it sees is +0, which changes no sum. If a row begins on another thread, each chunk's result goes
// to parts[thread], for that thread's MergeStep. Sinks are added behind a row's last chunk
// (Elementwise::add_sinks).
struct AttentionOperand {
  const AttentionShape* shape;
  AttentionScratch scratch;
  float* qkv;
  size_t qkv_stride;
  const float* q_norm;                       // [head_size], or [group][head_size], or null
  const float* q_norm_after_rope = nullptr;  // the same
  KeyBiasWaves bias;
  const float* sinks = nullptr;  // [group], or null: what takes part in the softmaxes' sums
  size_t layer, kv_head;
  float* out;  // [row][out_stride]: first column of this group's heads
  size_t out_stride;
  uint32_t thread, threads;
  float* const* parts;  // [threads]: [chunks of a slot][part_floats()]; null for threads that never
                        // need it
};
void AttentionStep(const void* operand, void* batch);

// Merges, in ascending order of chunks, the row that this thread's AttentionStep of the head has
// begun and other threads have continued, and finishes it. Comes right after that step, and after
// theirs.
void MergeStep(const void* operand, void* batch);
// Whether this micro-batch has such a row.
bool NeedsMerge(const void* operand, const void* batch);

}  // namespace larder::attention_node
