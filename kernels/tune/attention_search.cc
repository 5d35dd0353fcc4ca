#include "kernels/tune/attention_search.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/formats/kv_page.h"

namespace larder::kernels::inline tune {
namespace {

// Times the rounds of a comparison of schedules, which look at more of them.
constexpr size_t kComparison = 2, kLastComparison = 5;
// A tuning that is slower than this in all of its first rounds is not measured further.
constexpr double kHopeless = 1.15;
constexpr size_t kFirstLook = 3;
constexpr AttentionWork kWorks[] = {AttentionWork::kDecode, AttentionWork::kPrefill};

using Ratios = decltype(AttentionResult::gain);

// The score product of one work, as a product to search schedules for.
class ScoresTimer final : public RoundTimer {
 public:
  ScoresTimer(AttentionRoundTimer& timer, const AttentionTuning& tuning, AttentionWork work,
              size_t row_class)
      : timer_(timer), tuning_(tuning), work_(work), row_class_(row_class) {}
  double Round(const Schedule& schedule, size_t) override {
    tuning_.scores.of[row_class_] = schedule;
    return timer_.Round(tuning_, work_);
  }

 private:
  AttentionRoundTimer& timer_;
  AttentionTuning tuning_;
  const AttentionWork work_;
  const size_t row_class_;
};

class AttentionSearch {
 public:
  AttentionSearch(Isa isa, const HeadSize& size, AttentionRoundTimer& timer,
                  const SearchOptions& options)
      : isa_(isa),
        size_(size),
        timer_(timer),
        options_(options),
        end_(options.clock() + options.seconds) {}

  AttentionResult Find(const AttentionTuning& start) {
    AttentionTuning best = start;
    const auto take = [&](const AttentionTuning& found) {
      if (!(found == best) && Gains(Last(best, found))) best = found;
    };
    take(Sizes(best));
    take(Scores(best));
    AttentionResult result{.tuning = start, .out_of_time = out_of_time_};
    if (best == start) return result;
    const Ratios ratios = Last(start, best);
    if (!Gains(ratios)) return result;
    result.tuning = best;
    for (size_t work = 0; work < ratios.size(); ++work) result.gain[work] = 1 / ratios[work];
    return result;
  }

 private:
  bool TimeLeft() {
    if (options_.clock() < end_) return true;
    out_of_time_ = true;
    return false;
  }
  // The time of b over the time of a, by work: the median of pairs of rounds. The best of each,
  // which decides about products, is a matter of luck where KV comes from a cache that others use:
  // of 20 rounds of one tuning against itself (Xeon, KV in L3, busy neighbours) it was 0.96 to
  // 1.02, the median 0.997 to 1.002.
  Ratios Compare(const AttentionTuning& a, const AttentionTuning& b, size_t pairs) {
    Ratios medians{};
    std::vector<double> ratios;
    for (size_t i = 0; i < medians.size(); ++i) {
      ratios.clear();
      for (size_t pair = 0; pair < pairs; ++pair) {
        double time_a = 0, time_b = 0;
        if (pair % 2 == 0) time_a = timer_.Round(a, kWorks[i]);
        time_b = timer_.Round(b, kWorks[i]);
        if (pair % 2 == 1) time_a = timer_.Round(a, kWorks[i]);
        ratios.push_back(time_b / time_a);
        if (pair + 1 == kFirstLook && *std::min_element(ratios.begin(), ratios.end()) > kHopeless)
          break;
      }
      const auto middle = ratios.begin() + static_cast<ptrdiff_t>(ratios.size() / 2);
      std::nth_element(ratios.begin(), middle, ratios.end());
      medians[i] = *middle;
    }
    return medians;
  }
  Ratios Last(const AttentionTuning& a, const AttentionTuning& b) {
    return Compare(a, b, options_.rounds * kLastComparison);
  }
  static double Mean(const Ratios& ratios) { return std::sqrt(ratios[0] * ratios[1]); }
  bool Slower(const Ratios& ratios) const {
    return std::max(ratios[0], ratios[1]) > 1 + options_.least_gain / 2;
  }
  bool Gains(const Ratios& ratios) const {
    return std::min(ratios[0], ratios[1]) < 1 / (1 + options_.least_gain) && !Slower(ratios);
  }

  // Every value of each size, with the others as they are, or with those that are multiples of it
  // changed alike.
  std::vector<AttentionTuning> Neighbours(const AttentionTuning& of) const {
    std::vector<AttentionTuning> all;
    const auto add = [&](AttentionTuning to) {
      to.value_queries = std::min(to.value_queries, to.value_sums);
      if (!(to == of) && std::find(all.begin(), all.end(), to) == all.end() &&
          WhyNotFit(isa_, to).empty()) {
        all.push_back(to);
      }
    };
    for (size_t sums = 2; sums <= AttentionTuning::kMaxValueSums; sums += sums < 8 ? 1 : 2) {
      AttentionTuning to = of;
      to.value_sums = sums;
      add(to);
    }
    for (size_t queries = 1; queries <= TileSpec::kMaxRows; queries += queries < 8 ? 1 : 2) {
      AttentionTuning to = of;
      to.value_queries = queries;
      add(to);
      to.tile_queries = of.tile_queries / of.value_queries * queries;
      add(to);
      to.value_sums = of.value_sums / of.value_queries * queries;
      add(to);
    }
    // Whole kernels of values, or whole rows.
    for (const size_t times : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      for (const size_t unit : {of.value_queries, size_.group}) {
        AttentionTuning to = of;
        to.tile_queries = times * unit;
        if (to.tile_queries >= size_.group) add(to);
      }
    }
    return all;
  }

  AttentionTuning Sizes(AttentionTuning best) {
    for (bool gained = true; gained && TimeLeft();) {
      gained = false;
      AttentionTuning candidate = best;
      double least = 1 - options_.least_gain / 2;
      for (const AttentionTuning& at : Neighbours(best)) {
        if (!TimeLeft()) break;
        Ratios ratios = Compare(best, at, options_.rounds * kComparison);
        if (Mean(ratios) >= least) continue;
        // Slower in one work, or disturbed there? It is measured for longer.
        if (Slower(ratios)) ratios = Last(best, at);
        if (Mean(ratios) >= least || Slower(ratios)) continue;
        least = Mean(ratios);
        candidate = at;
        gained = true;
      }
      best = candidate;
    }
    return best;
  }

  // The tuning with other schedules for the scores of both works.
  AttentionTuning Scores(AttentionTuning tuning) {
    constexpr size_t kChunkPages = kChunkPositions / kPagePositions;
    for (size_t i = 0; i < std::size(kWorks) && TimeLeft(); ++i) {
      const size_t row_class = ScheduleTable::Class(size_.score_queries(tuning, kWorks[i]));
      SearchOptions options = options_;
      options.depth = SearchOptions::Depth::kFull;
      options.row_classes = {row_class};
      options.seconds = (end_ - options_.clock()) / static_cast<double>(std::size(kWorks) - i);
      ScoresTimer timer(timer_, tuning, kWorks[i], row_class);
      const SearchResult found = SearchSchedules(isa_, {{size_.blocks, kKeyPanel}, kChunkPages},
                                                 tuning.scores, timer, options);
      tuning.scores = found.table;
      out_of_time_ = out_of_time_ || found.out_of_time;
    }
    return tuning;
  }

  const Isa isa_;
  const HeadSize size_;
  AttentionRoundTimer& timer_;
  const SearchOptions& options_;
  const double end_;
  bool out_of_time_ = false;
};

}  // namespace

AttentionResult SearchAttention(Isa isa, const HeadSize& size, const AttentionTuning& start,
                                AttentionRoundTimer& timer, const SearchOptions& options) {
  LARDER_CHECK(size.blocks > 0 && size.group > 0 && options.clock && WhyNotFit(isa, start).empty());
  return AttentionSearch(isa, size, timer, options).Find(start);
}

}  // namespace larder::kernels::tune
