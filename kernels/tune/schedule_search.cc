#include "kernels/tune/schedule_search.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"

namespace larder::kernels::inline tune {
namespace {

// How much slower a schedule may be after a first look and stay in a comparison, and in the window.
// Three rounds: a neighbour that disturbs a third of them disturbs all three once in 27 looks.
constexpr double kHopeless = 1.15, kOutOfWindow = 1.3;
constexpr size_t kFirstLook = 3;
constexpr size_t kFinalists = 3;       // that are finetuned
constexpr size_t kLastComparison = 4;  // times the rounds of any other
constexpr double kShareOfTime = 2.5;   // the time of a class, relative to an equal share of what is
                                       // left
// From this class on (products of several tiles on any instruction set) schedules may be reused.
constexpr size_t kReuseFrom = ScheduleTable::Class(32);

struct AheadOf {
  Prefetch kind;
  size_t bytes;
};
constexpr AheadOf kAhead[] = {{Prefetch::kNone, 0},  {Prefetch::kT0, 256},  {Prefetch::kT0, 512},
                              {Prefetch::kT0, 1024}, {Prefetch::kT0, 2048}, {Prefetch::kT0, 4096},
                              {Prefetch::kT1, 2048}, {Prefetch::kT1, 4096}, {Prefetch::kNta, 1024}};
constexpr AheadOf kUsual = {Prefetch::kT0, 1024};

TileSpec With(const TileSpec& tile, const AheadOf& ahead) {
  return tile.Fetching(ahead.kind, ahead.bytes);
}

enum Dimension : size_t { kBlocks, kPanels, kRows, kDimensions };

// The search for one number of rows.
class RowSearch {
 public:
  RowSearch(Isa isa, const ProductSize& size, size_t rows, RoundTimer& timer,
            const SearchOptions& options, double until)
      : isa_(isa), size_(size), rows_(rows), timer_(timer), options_(options), until_(until) {}

  Schedule Find(const Schedule& start, const std::vector<TileSpec>& window) {
    return options_.depth == SearchOptions::Depth::kExhaustive ? Exhaustive(start, window)
                                                               : Search(start, window);
  }
  // How much faster b is in a long comparison.
  double Gain(const Schedule& a, const Schedule& b) {
    return 1 / Compare(a, b, options_.rounds * kLastComparison);
  }
  size_t rounds() const { return rounds_; }
  bool out_of_time() const { return out_of_time_; }

 private:
  bool TimeLeft() {
    if (options_.clock() < until_) return true;
    out_of_time_ = true;
    return false;
  }
  double Compare(const Schedule& a, const Schedule& b, size_t rounds) {
    rounds_ += 2 * rounds;
    return CompareRounds(timer_, a, b, rows_, rounds);
  }
  bool Faster(const Schedule& than, const Schedule& candidate) {
    return Compare(than, candidate, options_.rounds) < 1;
  }

  // What one step along a dimension is, and the largest slice that differs from all larger ones.
  static size_t Unit(const TileSpec& tile, Dimension d) {
    return d == kBlocks ? 2 : d == kPanels ? tile.panels : tile.rows;
  }
  size_t Most(const TileSpec& tile, Dimension d) const {
    switch (d) {
      case kBlocks:
        return std::min(kSumBlocks, RoundUp(size_.panel.blocks, 2));
      case kPanels:
        return RoundUp(size_.n_panels, tile.panels);
      default:
        return RoundUp(rows_, tile.rows);
    }
  }
  static size_t& Of(SliceSpec& slice, Dimension d) {
    return d == kBlocks ? slice.blocks : d == kPanels ? slice.panels : slice.rows;
  }
  SliceSpec Smallest(const TileSpec& tile) const {
    return {.blocks = std::min<size_t>(2, Most(tile, kBlocks)),
            .panels = tile.panels,
            .rows = tile.rows,
            .unpacked = false};
  }
  // The slice, `steps` units larger (or smaller) along d; nullopt at the end of the dimension, and
  // where the schedule would not fit.
  std::optional<Schedule> Moved(const Schedule& from, Dimension d, ptrdiff_t steps) const {
    Schedule to = from;
    const size_t unit = Unit(from.tile, d);
    size_t& at = Of(to.slice, d);
    const size_t most = Most(from.tile, d);
    if (steps > 0 && at >= most) return std::nullopt;
    if (steps > 0) {
      at = std::min(most, at + static_cast<size_t>(steps) * unit);
    } else {
      const size_t less = static_cast<size_t>(-steps) * unit;
      at = std::min(at, most) > less ? std::min(at, most) - less : unit;
    }
    // Whole chunks are written one way, whatever the number of blocks.
    if (d == kBlocks && at >= most) at = kSumBlocks;
    if (to == from || !ScheduleFits(isa_, to)) return std::nullopt;
    return to;
  }

  // Slow start as of TCP: each success along a dimension doubles the next step there, a failure
  // ends it.
  Schedule FastStart(const TileSpec& tile) {
    Schedule best{tile, Smallest(tile)};
    std::array<ptrdiff_t, kDimensions> step{};
    step.fill(1);
    for (bool any = true; any;) {
      any = false;
      for (const Dimension d : {kBlocks, kPanels, kRows}) {
        if (step[d] == 0 || !TimeLeft()) continue;
        const std::optional<Schedule> next = Moved(best, d, step[d]);
        if (next && Faster(best, *next)) {
          best = *next;
          step[d] *= 2;
          any = true;
        } else {
          step[d] = 0;
        }
      }
    }
    return best;
  }

  // Single steps, also back, and every way to fetch ahead, as long as one of them gains.
  Schedule Finetune(Schedule best) {
    for (bool gained = true; gained && TimeLeft();) {
      gained = false;
      Schedule candidate = best;
      double least = 1;
      const auto look = [&](const Schedule& at) {
        if (at == best || !TimeLeft()) return;
        const double time = Compare(best, at, options_.rounds);
        if (time < least) {
          least = time;
          candidate = at;
        }
      };
      for (const Dimension d : {kBlocks, kPanels, kRows}) {
        for (const ptrdiff_t steps : {-1, 1}) {
          if (const auto moved = Moved(best, d, steps)) look(*moved);
        }
      }
      for (const AheadOf& ahead : kAhead) look({With(best.tile, ahead), best.slice});
      if (TakesUnpacking(size_.panel.format)) {
        Schedule other = best;
        other.slice.unpacked = !best.slice.unpacked;
        if (ScheduleFits(isa_, other)) look(other);
      }
      if (least < 1 - options_.least_gain / 2) {
        best = candidate;
        gained = true;
      }
    }
    return best;
  }

  Schedule Search(const Schedule& start, const std::vector<TileSpec>& window) {
    struct Candidate {
      Schedule schedule;
      double time;  // time of the start's schedule
    };
    std::vector<Candidate> found;
    for (const TileSpec& tile : window) {
      if (!TimeLeft()) break;
      // A look with the start's slice, as far as the tile allows it.
      Schedule first{tile, start.slice};
      first.slice.panels = RoundUp(first.slice.panels, tile.panels);
      first.slice.rows = std::max(first.slice.rows, tile.rows);
      if (!ScheduleFits(isa_, first)) first.slice = {};
      const double look = Compare(start, first, kFirstLook);
      if (look > kOutOfWindow) continue;
      found.push_back({first, look});
      const Schedule grown = FastStart(tile);
      found.push_back({grown, Compare(start, grown, options_.rounds)});
    }
    found.push_back({start, 1});
    std::stable_sort(found.begin(), found.end(),
                     [](const Candidate& a, const Candidate& b) { return a.time < b.time; });
    if (options_.depth == SearchOptions::Depth::kFull) {
      for (size_t i = 0; i < std::min(found.size(), kFinalists) && TimeLeft(); ++i)
        found[i].schedule = Finetune(found[i].schedule);
    }
    Schedule best = found.front().schedule;
    for (size_t i = 1; i < std::min(found.size(), kFinalists); ++i) {
      if (Faster(best, found[i].schedule)) best = found[i].schedule;
    }
    return best;
  }

  Schedule Exhaustive(const Schedule& start, const std::vector<TileSpec>& window) {
    Schedule best = start;
    for (const TileSpec& tile : window) {
      for (const AheadOf& ahead : kAhead) {
        for (size_t blocks = 2; blocks <= kSumBlocks; blocks *= 2) {
          for (size_t panels = tile.panels; panels < 2 * Most(tile, kPanels); panels *= 2) {
            for (size_t rows = tile.rows; rows < 2 * Most(tile, kRows); rows *= 2) {
              if (!TimeLeft()) return best;
              for (const bool unpacked : {false, true}) {
                if (unpacked && !TakesUnpacking(size_.panel.format)) continue;
                const Schedule at{
                    With(tile, ahead),
                    {.blocks = blocks, .panels = panels, .rows = rows, .unpacked = unpacked}};
                if (ScheduleFits(isa_, at) && Faster(best, at)) best = at;
              }
            }
          }
        }
      }
    }
    return best;
  }

  const Isa isa_;
  const ProductSize size_;
  const size_t rows_;
  RoundTimer& timer_;
  const SearchOptions& options_;
  const double until_;
  size_t rounds_ = 0;
  bool out_of_time_ = false;
};

}  // namespace

double CompareRounds(RoundTimer& timer, const Schedule& a, const Schedule& b, size_t rows,
                     size_t rounds) {
  double best_a = std::numeric_limits<double>::infinity(), best_b = best_a;
  for (size_t i = 0; i < rounds; ++i) {
    best_a = std::min(best_a, timer.Round(a, rows));
    best_b = std::min(best_b, timer.Round(b, rows));
    if (i + 1 >= kFirstLook && best_b > kHopeless * best_a) break;
  }
  return best_b / best_a;
}

std::vector<TileSpec> TilesFor(Isa isa, size_t rows) {
  std::vector<TileSpec> tiles;
  for (size_t of_rows = 1; of_rows <= std::min(rows, TileSpec::kMaxRows); ++of_rows) {
    for (size_t panels = 1; panels <= TileSpec::kMaxPanels; ++panels) {
      for (const ActLoad load : {ActLoad::kBroadcast, ActLoad::kEmbedded}) {
        const TileSpec tile = With({.rows = of_rows, .panels = panels, .load = load}, kUsual);
        if (TileFits(isa, tile)) tiles.push_back(tile);
      }
    }
  }
  return tiles;
}

SearchResult SearchSchedules(Isa isa, const ProductSize& size, const ScheduleTable& start,
                             RoundTimer& timer, const SearchOptions& options) {
  LARDER_CHECK(size.panel.blocks > 0 && size.n_panels > 0 && options.clock);
  SearchResult result{.table = start, .classes = {}};
  std::vector<size_t> classes = options.row_classes;
  for (size_t of = 0; options.row_classes.empty() && of < ScheduleTable::kRowClasses; ++of)
    classes.push_back(of);
  const double end = options.clock() + options.seconds;
  std::vector<TileSpec> winners;  // one of each class so far
  for (size_t i = 0; i < classes.size(); ++i) {
    const size_t of = classes[i], rows = ScheduleTable::Rows(of);
    SearchResult::Class entry{.rows = rows};
    Schedule& schedule = result.table.of[of];
    const bool settled =
        of > kReuseFrom && winners.size() >= 2 && options.row_classes.empty() &&
        options.depth != SearchOptions::Depth::kExhaustive && winners[i - 1] == winners[i - 2] &&
        result.table.of[of - 1].slice.blocks == result.table.of[of - 2].slice.blocks;
    Schedule found;
    // Those of few rows have the most tiles to try, and later classes may reuse what they find.
    const double now = options.clock();
    const double share = std::min(1.0, kShareOfTime / static_cast<double>(classes.size() - i));
    RowSearch search(isa, size, rows, timer, options, now + (end - now) * share);
    if (settled) {
      found = result.table.of[of - 1];
      entry.reused = true;
    } else {
      std::vector<TileSpec> window;
      if (i < options.window) {
        window = TilesFor(isa, rows);
      } else {
        for (size_t w = winners.size() - std::min(options.window, winners.size());
             w < winners.size(); ++w) {
          if (std::find(window.begin(), window.end(), winners[w]) == window.end())
            window.push_back(winners[w]);
        }
        for (TileSpec& tile : window) tile = With(tile, kUsual);
      }
      found = search.Find(schedule, window);
    }
    if (!(found == schedule)) {
      const double gain = search.Gain(schedule, found);
      if (gain > 1 + options.least_gain) {
        entry.gain = gain;
        schedule = found;
      }
    }
    entry.rounds = search.rounds();
    result.out_of_time = result.out_of_time || search.out_of_time();
    winners.push_back(schedule.tile.WithoutPrefetch());
    result.classes.push_back(entry);
  }
  return result;
}

}  // namespace larder::kernels::tune
