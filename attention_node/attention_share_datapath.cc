#include <algorithm>

#include "attention_node/attention_share.h"
#include "base/memory.h"
#include "kernels/formats/kv_page.h"
#include "model/layer/layer_spec.h"

namespace larder::attention_node {
namespace {

// A row is split only if a thread's part is less than this many times the longest row: with more
// rows a thread, whole rows balance to within 1/16, and several rows of a slot in one tile read its
// keys once.
constexpr uint64_t kRowsThatBalance = 8;

}  // namespace

uint32_t ContextChunks(const model::BatchRows& rows, uint32_t row, size_t window) {
  const size_t position = rows.position[row];
  return static_cast<uint32_t>(position / kernels::kChunkPositions -
                               model::FirstSeen(window, position) / kernels::kChunkPositions + 1);
}

WorkPoint WorkBegin(const model::BatchRows& rows, size_t kv_heads, size_t window, size_t thread,
                    size_t threads) {
  // In 32 bits: a division of 64 takes three times as long, and each layer has two.
  const auto parts = static_cast<uint32_t>(thread * kv_heads);
  const auto per_head = static_cast<uint32_t>(threads);
  const uint32_t first_head = parts / per_head;
  const uint64_t in_head = parts % per_head;
  if (in_head == 0) return {first_head, 0, 0};
  uint64_t chunks = 0, longest = 0;
  for (uint32_t m = 0; m < rows.rows; ++m) {
    const uint64_t of_row = ContextChunks(rows, m, window);
    chunks += of_row;
    longest = std::max(longest, of_row);
  }
  uint64_t before = chunks * in_head / threads;
  uint32_t row = 0;
  while (row < rows.rows && before >= ContextChunks(rows, row, window))
    before -= ContextChunks(rows, row++, window);
  if (row < rows.rows && before > 0 && chunks * kv_heads >= threads * longest * kRowsThatBalance) {
    row += 2 * before >= ContextChunks(rows, row, window);
    before = 0;
  }
  if (row == rows.rows) return {first_head + 1, 0, 0};
  return {first_head, row, static_cast<uint32_t>(before)};
}

Range<size_t> OwnersOf(size_t kv_head, size_t kv_heads, size_t threads) {
  return {kv_head * threads / kv_heads, CeilDiv((kv_head + 1) * threads, kv_heads)};
}

Range<size_t> OwnersOfGroup(const model::LayerSpec& layer, size_t group, size_t threads) {
  const size_t kv_heads = layer.sizes.kv_heads;
  if (group < kv_heads) return OwnersOf(group, kv_heads, threads);
  return OwnersOf(group - kv_heads, layer.state_sizes().kv_heads, threads);
}

size_t OwnerOfState(const model::LayerSpec& layer, size_t nth, size_t threads) {
  return OwnersOf(nth, layer.state_sizes().heads, threads).end - 1;
}

}  // namespace larder::attention_node
