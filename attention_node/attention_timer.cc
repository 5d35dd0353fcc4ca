#include "attention_node/attention_timer.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "attention_node/attention_kernels.h"
#include "base/clock.h"
#include "model/step/batch_rows.h"

namespace larder::attention_node {
namespace {

using kernels::AttentionTuning;
using kernels::AttentionWork;
using kernels::kBlock;

// The most rows of a round, and of what FillKv appends at once.
constexpr size_t kMostRows = std::max(kMaxTileQueries, AttentionTimer::kPrefillRows);
static_assert(AttentionTimer::kPrefillDepth + kMostRows / 2 <= AttentionTimer::kDecodeDepth &&
              kMostRows / 2 <= AttentionTimer::kPrefillDepth);

model::ModelConfig ConfigOf(size_t head_size, size_t heads) {
  model::ModelConfig config;
  config.layers = heads;
  config.kinds.resize(1);
  config.kinds[0].sizes.kv_heads = 1;
  config.kinds[0].sizes.head_size = head_size;
  config.kind_of.assign(heads, 0);
  return config;
}

// What its pointers lead to is the arena's or the timer's.
AttentionShape LargestShape(kernels::Isa isa, size_t head_size, size_t group, const KvRegion& kv) {
  return {.head_size = head_size,
          .rotary_dim = head_size / 2 * 2,
          .group = group,
          .kv_heads = 1,
          .blocks = CeilDiv(head_size, kBlock),
          .value_size = head_size,
          .value_blocks = CeilDiv(head_size, kBlock),
          .epsilon = 0,
          .query_scale = 1,  // queries stay as they are, round after round
          .rope = nullptr,
          .elementwise = &kernels::GetElementwise(isa),
          .scores = nullptr,
          .chunk_stride = kernels::kChunkStride,
          .max_values_queries = AttentionTuning::kMaxValueSums,
          .values = nullptr,
          .tile_queries = std::max(kMaxTileQueries, group),
          .kv = &kv};
}

}  // namespace

AttentionTimer::AttentionTimer(kernels::Isa isa, size_t head_size, size_t group, size_t heads,
                               NumaNodeId node)
    : isa_(isa),
      size_{.blocks = CeilDiv(head_size, kBlock), .group = group},
      kv_(KvShape(ConfigOf(head_size, heads), 1, kDecodeDepth),
          [node](const KvShape::Part&) { return node; }),
      scores_(isa, ScoresShape(size_.blocks)),
      shape_(LargestShape(isa, head_size, group, kv_)),
      slots_(kMostRows, SlotId(0)),
      positions_(kMostRows) {
  CheckHeads("attention", head_size, group);
  const size_t row = (group + 2) * head_size, out_row = group * head_size;
  const size_t rope = kDecodeDepth * shape_.rotary_dim;
  size_t bytes = (kMostRows * (row + out_row) + rope) * sizeof(float) + 4 * kCacheLineBytes;
  LayOutScratch(shape_, [&](size_t n) -> std::byte* {
    bytes += RoundUp(n, kCacheLineBytes);
    return nullptr;
  });
  arena_ = topology::Arena(bytes, node);
  const AttentionScratch scratch =
      LayOutScratch(shape_, [&](size_t n) { return arena_.Allocate(n); });
  float* const qkv = arena_.AllocateArray<float>(kMostRows * row).data();
  float* const out = arena_.AllocateArray<float>(kMostRows * out_row).data();
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::generate_n(qkv, kMostRows * row, [&] { return normal(random); });
  // A rotation by nothing: queries stay as they are.
  float* const table = arena_.AllocateArray<float>(rope).data();
  for (size_t i = 0; i < rope; ++i)
    table[i] = i % shape_.rotary_dim < shape_.rotary_dim / 2 ? 1.0f : 0.0f;
  shape_.rope = table;
  for (size_t head = 0; head < kv_.shape().layers.size(); ++head) {
    heads_.push_back({.shape = &shape_,
                      .scratch = scratch,
                      .qkv = qkv,
                      .qkv_stride = row,
                      .q_norm = nullptr,
                      .layer = head,
                      .kv_head = 0,
                      .out = out,
                      .out_stride = out_row,
                      .thread = 0,
                      .threads = 1,
                      .parts = nullptr});
  }
  FillKv();
}

void AttentionTimer::FillKv() {
  for (size_t begin = 0; begin < kDecodeDepth; begin += kMostRows) {
    std::iota(positions_.begin(), positions_.end(), static_cast<uint32_t>(begin));
    model::BatchRows rows{.rows = static_cast<uint32_t>(std::min(kMostRows, kDecodeDepth - begin)),
                          .slot = slots_.data(),
                          .position = positions_.data()};
    for (const AttentionOperand& head : heads_) {
      const AppendOperand append{.shape = &shape_,
                                 .scratch = head.scratch,
                                 .qkv = head.qkv,
                                 .qkv_stride = head.qkv_stride,
                                 .k_norm = nullptr,
                                 .balance = nullptr,
                                 .layer = head.layer,
                                 .kv_head = head.kv_head};
      AppendStep(&append, &rows);
    }
  }
}

void AttentionTimer::Use(const AttentionTuning& tuning, AttentionWork work) {
  std::vector<kernels::ValuesFn>& values = values_[tuning.value_sums];
  shape_.max_values_queries = ValuesQueries(tuning, size_.group);
  AddValueKernels(isa_, size_.blocks, shape_.max_values_queries, tuning, values);
  shape_.values = values.data();
  shape_.tile_queries = TileQueries(tuning, size_.group);
  shape_.scores = &scores_.Of(tuning.scores[size_.score_queries(tuning, work)]);
}

double AttentionTimer::Round(const AttentionTuning& tuning, AttentionWork work) {
  Use(tuning, work);
  size_t n_rows = 1, first = kDecodeDepth - 1;
  if (work == AttentionWork::kPrefill) {
    const size_t tile = tuning.tile_rows(size_.group);
    n_rows = std::max<size_t>(1, kPrefillRows / tile) * tile;
    first = kPrefillDepth - n_rows / 2;
  }
  std::iota(positions_.begin(), positions_.end(), static_cast<uint32_t>(first));
  model::BatchRows rows{
      .rows = static_cast<uint32_t>(n_rows), .slot = slots_.data(), .position = positions_.data()};
  // All heads, since they differ where KV comes from a shared cache. A tile reads its KV once and
  // computes for longer.
  const size_t turns = work == AttentionWork::kDecode ? heads_.size() : 1;
  const int64_t start = NowNs();
  for (size_t i = 0; i < turns; ++i) {
    AttentionStep(&heads_[next_head_], &rows);
    next_head_ = next_head_ + 1 < heads_.size() ? next_head_ + 1 : 0;
  }
  return SecondsSince(start) / static_cast<double>(turns * n_rows);
}

}  // namespace larder::attention_node
