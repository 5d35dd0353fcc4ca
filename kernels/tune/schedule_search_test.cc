// The search for schedules over planted costs: it finds the optimum or comes close, with far fewer
// rounds than an exhaustive search, also when many rounds are disturbed; and it keeps its promises
// about time and reuse.
#include "kernels/tune/schedule_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace larder::kernels::inline tune {
namespace {

constexpr Isa kIsa = Isa::kAvx512Vnni;  // its space is the largest; no code runs
constexpr ProductSize kSize{.panel = {96}, .n_panels = 40};

double Octaves(double a, double b) { return std::abs(std::log2(a / b)); }

// Seconds with one best schedule for each number of rows: the further a schedule is from it, the
// slower. `disturbed`: the share of rounds that a neighbour makes longer, by up to twice.
class Planted final : public RoundTimer {
 public:
  explicit Planted(double disturbed = 0) : disturbed_(disturbed) {}

  double Round(const Schedule& schedule, size_t rows) override {
    EXPECT_TRUE(ScheduleFits(kIsa, schedule));
    ++rounds_;
    now_ += 1e-4;
    std::uniform_real_distribution<double> uniform;
    const double neighbour =
        uniform(random_) < disturbed_ ? 1 + uniform(random_) : 1 + 0.002 * uniform(random_);
    return Cost(schedule, rows) * neighbour;
  }
  // What a round takes if nobody disturbs it.
  double Cost(const Schedule& schedule, size_t rows) const {
    const auto& [tile, slice] = schedule;
    const double tiles = std::ceil(static_cast<double>(rows) / static_cast<double>(tile.rows));
    // Products with more sums in registers are faster, as far as registers go; a tile for more rows
    // than there are wastes some.
    const auto sums = static_cast<double>(tile.rows * tile.panels);
    double cost = static_cast<double>(rows) * 1e-6 *
                  (1 + 2 / sums + (tile.load == ActLoad::kEmbedded ? 0.1 : 0));
    if (tiles > 1) {
      cost *= 1 + 0.03 * Octaves(static_cast<double>(slice.blocks), 16);
      cost *= 1 + 0.02 * Octaves(static_cast<double>(std::max<size_t>(slice.panels, 1)), 4);
      cost *= 1 + 0.02 * Octaves(static_cast<double>(std::min(slice.rows, rows)),
                                 static_cast<double>(std::min<size_t>(rows, 96)));
    }
    return cost * (tile.prefetch == Prefetch::kT0 && tile.prefetch_bytes == 2048 ? 1 : 1.03);
  }
  double now() const { return now_; }
  size_t rounds() const { return rounds_; }

 private:
  const double disturbed_;
  std::mt19937 random_{7};
  double now_ = 0;
  size_t rounds_ = 0;
};

SearchResult Search(Planted& timer, SearchOptions options) {
  options.clock = [&timer] { return timer.now(); };
  return SearchSchedules(kIsa, kSize, AnalyticSchedules(kIsa, {}), timer, options);
}

SearchOptions Classes(std::vector<size_t> rows,
                      SearchOptions::Depth depth = SearchOptions::Depth::kFull) {
  SearchOptions options{.depth = depth, .seconds = 1e9};
  for (const size_t of : rows) options.row_classes.push_back(ScheduleTable::Class(of));
  return options;
}

TEST(ScheduleSearch, FindsWhatAnExhaustiveSearchFinds) {
  for (const size_t rows : {1, 4, 9, 64, 256}) {
    Planted quick, all;
    const SearchResult found = Search(quick, Classes({rows}));
    const SearchResult best = Search(all, Classes({rows}, SearchOptions::Depth::kExhaustive));
    EXPECT_LE(quick.Cost(found.table[rows], rows), 1.03 * all.Cost(best.table[rows], rows))
        << rows << " rows";
    EXPECT_FALSE(found.out_of_time);
    if (rows >= 64) {
      EXPECT_LT(static_cast<double>(quick.rounds()), 0.15 * static_cast<double>(all.rounds()));
    }
  }
}

TEST(ScheduleSearch, FindsItBesideBusyNeighbours) {
  for (const size_t rows : {2, 13, 128}) {
    Planted calm;
    const Schedule best =
        Search(calm, Classes({rows}, SearchOptions::Depth::kExhaustive)).table[rows];
    Planted noisy(0.3);
    const SearchResult found = Search(noisy, Classes({rows}));
    EXPECT_LE(calm.Cost(found.table[rows], rows), 1.03 * calm.Cost(best, rows)) << rows << " rows";
  }
}

TEST(ScheduleSearch, FastStartAloneIsBetterThanTheStart) {
  Planted timer;
  const SearchResult fast = Search(timer, Classes({256}, SearchOptions::Depth::kFastStart));
  const ScheduleTable start = AnalyticSchedules(kIsa, {});
  EXPECT_LE(timer.Cost(fast.table[256], 256), timer.Cost(start[256], 256));
  EXPECT_EQ(fast.table[1], start[1]);  // only the classes that were asked for
}

// A table that is already the best stays as it is, to the last field.
TEST(ScheduleSearch, KeepsWhatItCannotBeat) {
  Planted first, second;
  SearchOptions options = Classes({128});
  options.clock = [&] { return first.now(); };
  const ScheduleTable best = Search(first, options).table;
  options.clock = [&] { return second.now(); };
  EXPECT_EQ(SearchSchedules(kIsa, kSize, best, second, options).table, best);
}

// Beyond the window only tiles that won lately are tried; a schedule that wins twice is kept for
// all larger products.
TEST(ScheduleSearch, TheWindowSlidesAndSchedulesAreReused) {
  Planted narrow, wide;
  SearchOptions options{.window = 5, .seconds = 1e9};
  const SearchResult few = Search(narrow, options);
  options.window = 20;
  const SearchResult many = Search(wide, options);
  EXPECT_LT(narrow.rounds(), wide.rounds());
  ASSERT_EQ(few.classes.size(), ScheduleTable::kRowClasses);
  for (size_t of = 5; of < few.classes.size(); ++of) {
    const auto size = [](const Schedule& schedule) {
      return std::to_string(schedule.tile.rows) + "x" + std::to_string(schedule.tile.panels);
    };
    std::set<std::string> tried = {size(AnalyticSchedules(kIsa, {}).of[of])};  // the start's
    for (size_t i = of - 5; i < of; ++i) tried.insert(size(few.table.of[i]));
    EXPECT_TRUE(tried.contains(size(few.table.of[of]))) << of;
  }
  for (const SearchResult* result : {&few, &many}) {
    EXPECT_FALSE(result->classes[ScheduleTable::Class(32)].reused);
  }
}

TEST(ScheduleSearch, EndsWhenItsTimeIsOver) {
  Planted timer;
  SearchOptions options{.seconds = 0.5};
  const SearchResult result = Search(timer, options);
  EXPECT_TRUE(result.out_of_time);
  EXPECT_LT(timer.now(), 1.0);  // the last comparison of each class is not cut off
  for (const Schedule& schedule : result.table.of) EXPECT_TRUE(ScheduleFits(kIsa, schedule));
  Planted none;
  options.seconds = 0;
  EXPECT_EQ(Search(none, options).table, AnalyticSchedules(kIsa, {}));
}

TEST(ScheduleSearch, TilesForFewRowsAreNoLarger) {
  for (const size_t rows : {1, 3, 16, 200}) {
    const std::vector<TileSpec> tiles = TilesFor(kIsa, rows);
    EXPECT_FALSE(tiles.empty());
    for (const TileSpec& tile : tiles) {
      EXPECT_TRUE(TileFits(kIsa, tile));
      EXPECT_LE(tile.rows, rows);
    }
  }
  EXPECT_EQ(TilesFor(Isa::kAvx2, 100).size(), 2u);
}

}  // namespace
}  // namespace larder::kernels::tune
