#include "kernels/formats/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace larder::kernels::inline formats {

namespace {

double Ratio(size_t a, size_t b) {
  return static_cast<double>(std::max(a, b)) /
         static_cast<double>(std::max<size_t>(1, std::min(a, b)));
}

double BytesRatio(size_t a, size_t b) {
  return Ratio(std::min(a, KernelTuning::kMostTunedBytes),
               std::min(b, KernelTuning::kMostTunedBytes));
}

}  // namespace

bool KernelTuning::Tuned::IsFor(const PanelShape& of, size_t of_bytes) const {
  return panel.format.type == of.format.type && Ratio(panel.blocks, of.blocks) <= 4 &&
         BytesRatio(weight_bytes, of_bytes) <= 2;
}

const ScheduleTable& KernelTuning::For(const PanelShape& panel, size_t weight_bytes) const {
  const Tuned* nearest = nullptr;
  const auto distance = [&](const Tuned& of) {
    return std::pair(Ratio(of.panel.blocks, panel.blocks),
                     BytesRatio(of.weight_bytes, weight_bytes));
  };
  for (const Tuned& of : tuned) {
    if (of.IsFor(panel, weight_bytes) && (!nearest || distance(of) < distance(*nearest)))
      nearest = &of;
  }
  if (nearest) return nearest->products;
  return weight_bytes > 0 && weight_bytes <= in_l2_bytes ? products_in_l2 : products;
}

const AttentionTuning& KernelTuning::ForAttention(size_t blocks, size_t group) const {
  for (const TunedAttention& of : tuned_attention) {
    if (of.blocks == blocks && of.group == group) return of.attention;
  }
  return attention;
}

std::string WhyNotFit(Isa isa, const AttentionTuning& tuning) {
  constexpr size_t kMaxSums = AttentionTuning::kMaxValueSums,
                   kMaxTile = AttentionTuning::kMaxTileQueries;
  if (tuning.value_sums < 1 || tuning.value_sums > kMaxSums)
    return fmt::format("{} sums of values; 1 to {} are possible", tuning.value_sums, kMaxSums);
  if (tuning.value_queries < 1 || tuning.value_queries > tuning.value_sums) {
    return fmt::format("{} queries in a kernel of {} sums of values, where each needs one",
                       tuning.value_queries, tuning.value_sums);
  }
  if (tuning.tile_queries < 1 || tuning.tile_queries > kMaxTile)
    return fmt::format("a tile of {} queries; 1 to {} are possible", tuning.tile_queries, kMaxTile);
  for (size_t of = 0; of < ScheduleTable::kRowClasses; ++of) {
    if (!ScheduleFits(isa, tuning.scores.of[of])) {
      return fmt::format("the schedule of the scores of {} queries does not fit {}",
                         ScheduleTable::Rows(of), IsaName(isa));
    }
  }
  return "";
}

KernelTuning DefaultTuning(Isa isa, const CoreShape& core) {
  KernelTuning tuning{.products = AnalyticSchedules(isa, core)};
  tuning.products_in_l2 = tuning.products;
  // A quarter of L2 is for activations and the KV cache. Fetching ahead costs a load for each line:
  // on a Xeon with 2 MB of L2, 5 % of the speed of decoding a model of 2.5 MB with two threads.
  tuning.in_l2_bytes = core.l2_bytes / 4 * 3;
  for (size_t of = 0; of < ScheduleTable::kRowClasses; ++of) {
    auto& [tile, slice] = tuning.products_in_l2.of[of];
    if (std::min(ScheduleTable::Rows(of), slice.rows) <= tile.rows) tile = tile.WithoutPrefetch();
  }
  // A sum of values takes two registers, for a page's integers and for the chunk: 28 of 32
  // registers, 12 of 16 where a vector is two registers. Others hold broadcast weights and, without
  // VNNI, values, so that only 8 are left. 28 queries are two tiles of 14 in the score product and
  // four kernels of 7 queries and 32 elements in the sums of values.
  AttentionTuning& attention = tuning.attention;
  // Keys are in L2: the values of the chunk before have fetched them. On a Xeon with 2 MB of L2,
  // fetching them again made attention of 1 to 4 queries 0.5 to 2.5 % slower (heads of 32 to 128
  // elements, KV in L2 and in L3).
  attention.scores = tuning.products_in_l2;
  switch (isa) {
    case Isa::kAvx512Vnni:
      attention.value_sums = 14;
      attention.value_queries = 7;
      break;
    case Isa::kAvxVnni:
      attention.value_sums = attention.value_queries = 3;
      break;
    case Isa::kAvx2:
      attention.value_sums = attention.value_queries = 2;
      break;
    case Isa::kScalar:
      attention.value_sums = attention.value_queries = 16;
      break;
  }
  return tuning;
}

}  // namespace larder::kernels::formats
