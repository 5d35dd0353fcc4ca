// What AttentionNode and AttentionTimer share: making the kernels for heads of one size by an
// AttentionTuning, and a thread's scratch. Set-up only.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attention_node/attention_steps.h"
#include "kernels/formats/tuning.h"
#include "kernels/gemm/gemm.h"
#include "kernels/rows/elementwise.h"

namespace larder::attention_node {

// Throws Error if the steps have no room for `group` query heads a KV head, or for heads of that
// size. `model`: for the message.
void CheckHeads(const std::string& model, size_t head_size, size_t group);

// Queries x pages of keys, for heads of `blocks` blocks.
kernels::GemmShape ScoresShape(size_t blocks);

// The most queries of a tile and of a kernel of values, where `group` query heads share a KV head:
// a tile has at least those of one row.
size_t TileQueries(const kernels::AttentionTuning&, size_t group);
size_t ValuesQueries(const kernels::AttentionTuning&, size_t group);

// AttentionShape::values: adds those of the kernels of 1 .. max_queries queries that are missing;
// [0] is null. Each is checked against the reference.
void AddValueKernels(kernels::Isa, size_t blocks, size_t max_queries,
                     const kernels::AttentionTuning&, std::vector<kernels::ValuesFn>& values);

// A thread's scratch for tiles of that shape. take(bytes) gives each of its parts memory.
template <typename Take>
AttentionScratch LayOutScratch(const AttentionShape& shape, Take take) {
  const auto floats = [&](size_t n) { return reinterpret_cast<float*>(take(n * sizeof(float))); };
  const size_t blocks = shape.blocks, tile = shape.tile_queries;
  const size_t value = shape.value_blocks * kernels::kBlock;
  AttentionScratch s{};
  s.act = reinterpret_cast<kernels::ActBlock*>(take(blocks * sizeof(kernels::ActBlock)));
  s.queries = reinterpret_cast<uint8_t*>(take(tile * kernels::ActRowBytes(blocks)));
  s.scores = floats(tile * shape.chunk_stride);
  s.weights = reinterpret_cast<kernels::ChunkWeights*>(
      take(shape.max_values_queries * sizeof(kernels::ChunkWeights)));
  s.chunk = floats(tile * value);
  s.running = floats(tile * value);
  s.max = floats(tile);
  s.sum = floats(tile);
  s.query = floats(blocks * kernels::kBlock);
  s.terms = floats(tile * 2 * shape.bias_pairs);
  s.turned = floats(tile * 2 * shape.bias_pairs);
  return s;
}

}  // namespace larder::attention_node
