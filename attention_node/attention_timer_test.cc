// Timings decide nothing here: that every tuning runs, and that the work is what it says.
#include "attention_node/attention_timer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace larder::attention_node {
namespace {

using kernels::AttentionTuning;
using kernels::AttentionWork;

TEST(AttentionTimer, RunsEveryTuningForHeadsOfAnySize) {
  for (const kernels::Isa isa : {kernels::Isa::kScalar, kernels::BestIsa()}) {
    const kernels::ScheduleTable scores = kernels::AnalyticSchedules(isa, {});
    for (const size_t head_size : {32, 80}) {
      for (const size_t group : {1, 5, 40}) {
        AttentionTimer timer(isa, head_size, group, 2, NumaNodeId(0));
        for (const AttentionTuning& tuning :
             {AttentionTuning{scores, 1, 1, 1}, AttentionTuning{scores, 7, 3, 30},
              AttentionTuning{scores, 32, 32, 256}}) {
          if (isa == kernels::Isa::kScalar && group == 40) continue;  // slow
          const double decode = timer.Round(tuning, AttentionWork::kDecode),
                       prefill = timer.Round(tuning, AttentionWork::kPrefill);
          EXPECT_GT(decode, 0);
          EXPECT_GT(prefill, 0);
        }
      }
    }
  }
}

TEST(AttentionTimer, HeadsThatStepsHaveNoRoomForAreRefused) {
  EXPECT_THROW(AttentionTimer(kernels::BestIsa(), 64, kMaxTileQueries + 1, 1, NumaNodeId(0)),
               Error);
  EXPECT_THROW(AttentionTimer(kernels::BestIsa(), 32 * kMaxHeadBlocks + 1, 1, 1, NumaNodeId(0)),
               Error);
}

}  // namespace
}  // namespace larder::attention_node
