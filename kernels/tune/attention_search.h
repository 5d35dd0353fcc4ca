// The search for an AttentionTuning. Its space is small: how many sums of values stay in registers,
// for how many queries at a time, how many queries pass over the cache together, and the schedules
// of two score products. One is varied at a time, as long as that gains; schedules are searched as
// for products (schedule_search.h). What is timed is all of attention, for decoding and for a
// prompt: a candidate must be faster in their mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/formats/isa.h"
#include "kernels/formats/tuning.h"
#include "kernels/tune/schedule_search.h"

namespace larder::kernels::inline tune {

enum class AttentionWork : uint8_t { kDecode, kPrefill };
inline constexpr std::array<std::string_view, 2> kAttentionWorkNames = {"decode", "prefill"};

// What is being tuned: attention of heads of `blocks` blocks, `group` query heads per KV head.
struct HeadSize {
  size_t blocks = 0, group = 0;
  // The queries of the score products in which most of the work is.
  size_t score_queries(const AttentionTuning& tuning, AttentionWork work) const {
    return group * (work == AttentionWork::kDecode ? 1 : tuning.tile_rows(group));
  }
};

// Measures attention; a test gives a synthetic one.
class AttentionRoundTimer {
 public:
  virtual ~AttentionRoundTimer() = default;
  // The seconds that attention of one token takes for one KV head, by a tuning without WhyNotFit.
  virtual double Round(const AttentionTuning&, AttentionWork) = 0;
};

struct AttentionResult {
  AttentionTuning tuning;
  // For each kind of work: time of the start / time of the one found, in the last comparison.
  std::array<double, kAttentionWorkNames.size()> gain = {1, 1};
  bool out_of_time = false;  // the search saw less of its space
};

// Returns the start, or a tuning that makes one kind of work faster by more than options.least_gain
// and the other no slower. The options depth, window and row_classes are not used.
AttentionResult SearchAttention(Isa, const HeadSize&, const AttentionTuning& start,
                                AttentionRoundTimer&, const SearchOptions&);

}  // namespace larder::kernels::tune
