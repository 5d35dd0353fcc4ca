// The search for attention's sizes over planted costs: it finds the optimum or comes close, also
// when many rounds are disturbed; keeps what it cannot beat; and ends in time.
#include "kernels/tune/attention_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace larder::kernels::inline tune {
namespace {

constexpr Isa kHeadIsa = Isa::kAvx512Vnni;  // its space is the largest; no code runs
constexpr HeadSize kHeads{.blocks = 2, .group = 4};

double Doublings(size_t a, size_t b) {
  return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
}

// Seconds with one best tuning: the further another one is from it, the slower.
class PlantedHeads final : public AttentionRoundTimer {
 public:
  explicit PlantedHeads(double disturbed = 0, double decode_price = 0)
      : disturbed_(disturbed), decode_price_(decode_price) {}

  double Round(const AttentionTuning& tuning, AttentionWork work) override {
    EXPECT_EQ(WhyNotFit(kHeadIsa, tuning), "");
    ++rounds_;
    now_ += 1e-4;
    std::uniform_real_distribution<double> uniform;
    const double neighbour =
        uniform(random_) < disturbed_ ? 1 + uniform(random_) : 1 + 0.002 * uniform(random_);
    return Cost(tuning, work) * neighbour;
  }
  // What a round takes if nobody disturbs it.
  double Cost(const AttentionTuning& tuning, AttentionWork work) const {
    const Schedule& scores = tuning.scores[kHeads.score_queries(tuning, work)];
    double cost = 1e-5 * (1 + 0.05 * Doublings(tuning.value_sums, 20));
    if (work == AttentionWork::kDecode) {
      cost *= 1 + 0.02 * Doublings(scores.tile.rows * scores.tile.panels, 16);
      return cost * (1 + decode_price_ * Doublings(tuning.tile_queries, 28));
    }
    return cost * (1 + 0.04 * Doublings(tuning.value_queries, 6)) *
           (1 + 0.03 * Doublings(tuning.tile_queries, 96)) *
           (1 + 0.02 * Doublings(scores.tile.panels, 4));
  }
  double now() const { return now_; }
  size_t rounds() const { return rounds_; }

 private:
  const double disturbed_, decode_price_;
  std::mt19937 random_{7};
  double now_ = 0;
  size_t rounds_ = 0;
};

AttentionTuning UsualTuning() {
  const ScheduleTable scores = AnalyticSchedules(kHeadIsa, {});
  return {.scores = scores, .value_sums = 28, .value_queries = 14, .tile_queries = 28};
}

AttentionResult SearchHeads(PlantedHeads& timer, const AttentionTuning& start,
                            double seconds = 1e9) {
  SearchOptions options{.seconds = seconds};
  options.clock = [&timer] { return timer.now(); };
  return SearchAttention(kHeadIsa, kHeads, start, timer, options);
}

TEST(AttentionSearch, FindsThePlantedSizesAndTiles) {
  PlantedHeads timer;
  const AttentionResult found = SearchHeads(timer, UsualTuning());
  EXPECT_EQ(found.tuning.value_sums, 20u);
  EXPECT_EQ(found.tuning.value_queries, 6u);
  EXPECT_EQ(found.tuning.tile_queries, 96u);
  const TileSpec& decode = found.tuning.scores[4].tile;
  EXPECT_EQ(decode.rows * decode.panels, 12u);  // the next to 16 that fits the registers and 4 rows
  EXPECT_EQ(found.tuning.scores[96].tile.panels, 4u);
  EXPECT_EQ(found.tuning.scores[9], UsualTuning().scores[9]) << "of no work that was measured";
  for (size_t work = 0; work < 2; ++work) {
    const auto of = static_cast<AttentionWork>(work);
    EXPECT_NEAR(found.gain[work], timer.Cost(UsualTuning(), of) / timer.Cost(found.tuning, of),
                0.01);
  }
  EXPECT_FALSE(found.out_of_time);
}

TEST(AttentionSearch, FindsThemBesideBusyNeighbours) {
  PlantedHeads calm, noisy(0.3);
  const AttentionTuning best = SearchHeads(calm, UsualTuning()).tuning,
                        found = SearchHeads(noisy, UsualTuning()).tuning;
  for (const AttentionWork work : {AttentionWork::kDecode, AttentionWork::kPrefill})
    EXPECT_LE(calm.Cost(found, work), 1.03 * calm.Cost(best, work));
}

TEST(AttentionSearch, KeepsWhatItCannotBeat) {
  PlantedHeads first, second;
  const AttentionTuning best = SearchHeads(first, UsualTuning()).tuning;
  const AttentionResult again = SearchHeads(second, best);
  EXPECT_EQ(again.tuning, best);
  EXPECT_EQ(again.gain[0], 1);
  EXPECT_EQ(again.gain[1], 1);
}

// A prompt's gain is not paid for by decoding.
TEST(AttentionSearch, NoWorkBecomesSlower) {
  PlantedHeads timer(0, 0.05);
  const AttentionTuning found = SearchHeads(timer, UsualTuning()).tuning;
  EXPECT_LE(timer.Cost(found, AttentionWork::kDecode),
            1.005 * timer.Cost(UsualTuning(), AttentionWork::kDecode));
  EXPECT_LT(timer.Cost(found, AttentionWork::kPrefill),
            timer.Cost(UsualTuning(), AttentionWork::kPrefill));
}

TEST(AttentionSearch, EndsWhenItsTimeIsOver) {
  PlantedHeads timer;
  const AttentionResult result = SearchHeads(timer, UsualTuning(), 0.1);
  EXPECT_TRUE(result.out_of_time);
  EXPECT_LT(timer.now(), 0.2);  // a comparison is not cut off
  EXPECT_EQ(WhyNotFit(kHeadIsa, result.tuning), "");
  PlantedHeads none;
  EXPECT_EQ(SearchHeads(none, UsualTuning(), 0).tuning, UsualTuning());
}

}  // namespace
}  // namespace larder::kernels::tune
