// The search for schedules: sandwich-kernel (Sandwich: Separating Prefill-Decode Compilation for
// Efficient CPU LLM Serving, sections 6 and 7.1) over Larder's tiles and slices. For products of
// more and more rows, each tile of a window is started with the smallest slice and grows it
// dimension by dimension, twice as far at each success (fast start); the best of them are then
// moved by single steps (finetune). The window holds all tiles for the first numbers of rows and
// then those that won lately; when the same schedule wins again, it is kept for all larger numbers
// (reuse).
//
// Differences from the paper, because a neighbour may double a time: two schedules are compared by
// the best of alternating rounds, never by times taken at different moments; and a schedule is
// taken only if it beats the one that the search began with in a longer comparison.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "kernels/formats/isa.h"
#include "kernels/formats/panel_format.h"
#include "kernels/formats/schedule.h"

namespace larder::kernels::inline tune {

// What is being tuned: products of one matrix, or of several with equally many inputs.
struct ProductSize {
  PanelShape panel;
  size_t n_panels = 0;  // the panels that one thread has
};

// Measures one product; a test gives a synthetic one.
class RoundTimer {
 public:
  virtual ~RoundTimer() = default;
  // The seconds that one product of `rows` rows takes with the schedule, which must fit
  // (ScheduleFits).
  virtual double Round(const Schedule& schedule, size_t rows) = 0;
};

struct SearchOptions {
  enum class Depth : uint8_t {
    kFastStart,
    kFull,        // fast start and finetune
    kExhaustive,  // every tile with every slice of a grid: what the others are judged by
  };
  Depth depth = Depth::kFull;
  size_t window = 16;               // row classes: the paper's sigma
  size_t rounds = 5;                // rounds of each schedule in a comparison
  double least_gain = 0.01;         // what a schedule must gain over the one that the search began
                                    // with
  double seconds = 60;              // for the whole table
  std::function<double()> clock;    // seconds; required
  std::vector<size_t> row_classes;  // empty: all
};

struct SearchResult {
  ScheduleTable table;
  struct Class {
    size_t rows = 0;  // the number of rows that it is tuned for
    size_t rounds = 0;
    double gain = 1;  // time of the start's schedule / time of the one found, in the last
                      // comparison
    bool reused = false;
  };
  std::vector<Class> classes;
  bool out_of_time = false;  // some classes have the start's schedules, or saw less of their space
};

// Tiles of every size, in every load form that is legal, that make sense for `rows` rows.
std::vector<TileSpec> TilesFor(Isa, size_t rows);

// The table of `start`, with better schedules where they were found.
SearchResult SearchSchedules(Isa, const ProductSize&, const ScheduleTable& start, RoundTimer&,
                             const SearchOptions&);

// The time of b over the time of a: the best of `rounds` alternating rounds of each. Ends early if
// b is clearly slower.
double CompareRounds(RoundTimer&, const Schedule& a, const Schedule& b, size_t rows, size_t rounds);

}  // namespace larder::kernels::tune
