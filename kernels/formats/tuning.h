// KernelTuning: how kernels divide their work. No value changes a bit of any result, so the two
// ends of a link may use different ones. Chosen at set-up and passed to the functions that make
// kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/formats/isa.h"
#include "kernels/formats/panel_format.h"
#include "kernels/formats/schedule.h"

namespace larder::kernels::inline formats {

// How attention divides its work, for heads of one size.
struct AttentionTuning {
  static constexpr size_t kMaxTileQueries = 256;  // the steps keep their maxima on the stack
  static constexpr size_t kMaxValueSums = 32;     // as many as the largest instruction set has
                                                  // registers

  ScheduleTable scores;  // schedules of queries x pages of keys, by number of queries
  // Weighted sums of values (MakeValues). More sums than registers are correct but slow.
  size_t value_sums = 1;     // 16-lane sums kept in registers during a pass over a chunk
  size_t value_queries = 1;  // the most queries per kernel, at most value_sums, so that one sum of
                             // each fits
  // Queries (rows x heads of a group) per pass over a chunk; never fewer than one row has.
  size_t tile_queries = 28;

  bool operator==(const AttentionTuning&) const = default;
  // Rows (tokens) of a tile, if `group` query heads share a KV head.
  size_t tile_rows(size_t group) const { return std::max<size_t>(1, tile_queries / group); }
};
// Empty, or why an instruction set cannot run it: a schedule that does not fit, a size beyond its
// limits.
std::string WhyNotFit(Isa, const AttentionTuning&);

struct KernelTuning {
  // Matrix products (kernels/gemm/). Gemm::Make refuses schedules that do not fit. `tuned`:
  // schedules that were found for one format and one number of input blocks, on a thread that reads
  // weight_bytes of weights over and over (how far ahead to fetch depends on the cache that they
  // come from). They are used for products of that format whose blocks differ by up to a factor of
  // four and whose bytes by up to a factor of two. `products` are for all others.
  ScheduleTable products;
  struct Tuned {
    PanelShape panel;
    size_t weight_bytes;  // of one thread; more than kMostTunedBytes counts as kMostTunedBytes
    ScheduleTable products;
    bool operator==(const Tuned&) const = default;
    bool IsFor(const PanelShape&, size_t of_bytes) const;
  };
  static constexpr size_t kMostTunedBytes = size_t{32} << 20;  // larger than any share of a cache
  std::vector<Tuned> tuned;
  // Like `products`, but for weights that stay in the core's L2 and need no fetching ahead: those
  // of threads that read at most in_l2_bytes.
  ScheduleTable products_in_l2;
  size_t in_l2_bytes = 0;
  // weight_bytes 0: a product of something other than weights; it gets `products`.
  const ScheduleTable& For(const PanelShape&, size_t weight_bytes) const;

  // Attention: `tuned_attention` for the listed sizes of heads (blocks, and query heads per KV
  // head); `attention` for all others.
  AttentionTuning attention;
  struct TunedAttention {
    size_t blocks, group;
    AttentionTuning attention;
    bool operator==(const TunedAttention&) const = default;
  };
  std::vector<TunedAttention> tuned_attention;
  const AttentionTuning& ForAttention(size_t blocks, size_t group) const;
};

// Analytic schedules for the caches of a core, and constants found by measurement.
KernelTuning DefaultTuning(Isa, const CoreShape& = HostCore());

}  // namespace larder::kernels::formats
