// The search for schedules and its parts (Sandwich, section 8.4, tables 1 and 3; see
// kernels/tune/schedule_search.h): the same products by
//   fixed:       one tile for all, whole slices: what a generator without any choice would run
//   analytic:    what Larder uses without tuning
//   fast start:  slices grown from the smallest, no single steps
//   full:        `larder tune`
//   exhaustive:  every tile, every way to fetch ahead, and a grid of slices
// and by windows of 5 to 20 row classes. All schedules of a row are timed in alternating rounds,
// best of each.
//   bench_tune [--inputs N] [--panels N] [--mb N] [--rounds N] [--seconds N] [--isa NAME] [--cpu N]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/clock.h"
#include "bench/product_data.h"
#include "bench/table_main.h"
#include "kernels/tune/schedule_search.h"
#include "topology/host.h"
#include "weight_node/product_timer.h"

namespace larder::bench {
namespace {

using kernels::Isa;
using kernels::Schedule;
using kernels::ScheduleTable;
using kernels::SearchOptions;

struct Options {
  size_t inputs = 1024, panels = 32, mb = 8, rounds = 200, seconds = 60;
};

// The numbers of rows that are compared: decode, small batches, prefill.
const std::vector<size_t> kRows = {1, 2, 4, 8, 16, 32, 128, 256};

class Ablation {
 public:
  Ablation(Isa isa, const Options& options)
      : isa_(isa),
        options_(options),
        size_{{options.inputs / kernels::kBlock}, options.panels},
        timer_(isa, size_, options.mb << 20, Node()),
        analytic_(kernels::AnalyticSchedules(isa, kernels::HostCore())) {
    start_ns_ = NowNs();
  }

  void Run() {
    fmt::print(
        "{}, {}: {} inputs, {} panels a product, {} MB of weights; best of {} alternating "
        "rounds\n\n",
        topology::CpuName(), kernels::IsaName(isa_), options_.inputs, options_.panels, options_.mb,
        options_.rounds);
    ScheduleTable fixed;
    fixed.Fill({kernels::TilesFor(isa_, kernels::TileSpec::kMaxRows).back(), {}});
    Add("fixed", fixed);
    Add("analytic", analytic_);
    Search("fast start", SearchOptions::Depth::kFastStart, 16, {});
    for (const size_t window : {5, 10, 16, 20})
      Search(fmt::format("full, window {}", window), SearchOptions::Depth::kFull, window, {});
    std::vector<size_t> classes;
    for (const size_t rows : kRows) classes.push_back(ScheduleTable::Class(rows));
    Search("exhaustive", SearchOptions::Depth::kExhaustive, 20, classes);
    Compare();
  }

 private:
  struct Entry {
    std::string name;
    ScheduleTable table;
    size_t rounds = 0;
    double seconds = 0;
  };

  double Seconds() const { return SecondsSince(start_ns_); }
  void Add(const std::string& name, const ScheduleTable& table) {
    entries_.push_back({name, table});
  }
  void Search(const std::string& name, SearchOptions::Depth depth, size_t window,
              std::vector<size_t> classes) {
    SearchOptions options;
    options.depth = depth;
    options.window = window;
    options.row_classes = std::move(classes);
    options.seconds = static_cast<double>(options_.seconds) *
                      (depth == SearchOptions::Depth::kExhaustive ? 4 : 1);
    options.clock = [this] { return Seconds(); };
    const double before = Seconds();
    const kernels::SearchResult result =
        kernels::SearchSchedules(isa_, size_, analytic_, timer_, options);
    Entry entry{name + (result.out_of_time ? " (out of time)" : ""), result.table};
    for (const auto& of : result.classes) entry.rounds += of.rounds;
    entry.seconds = Seconds() - before;
    entries_.push_back(entry);
  }

  void Compare() {
    std::vector<std::vector<double>> best(entries_.size(), std::vector<double>(kRows.size(), 1e9));
    for (size_t round = 0; round < options_.rounds; ++round) {
      for (size_t r = 0; r < kRows.size(); ++r) {
        // The first rounds after a product of other rows find the caches cold, with any schedule.
        for (size_t i = 0; i < 3; ++i) timer_.Round(entries_[0].table[kRows[r]], kRows[r]);
        for (size_t i = 0; i < entries_.size(); ++i) {
          const size_t e = (i + round) % entries_.size();
          best[e][r] = std::min(best[e][r], timer_.Round(entries_[e].table[kRows[r]], kRows[r]));
        }
      }
    }
    fmt::print("| schedules | seconds | rounds |");
    for (const size_t rows : kRows) fmt::print(" {} rows |", rows);
    fmt::print(" mean | regret |\n|---|--:|--:|");
    for (size_t i = 0; i < kRows.size() + 2; ++i) fmt::print("--:|");
    fmt::print("\n");
    // Speeds relative to the analytic schedules; regret against the fastest schedule of a row, from
    // any search.
    for (size_t e = 0; e < entries_.size(); ++e) {
      fmt::print("| {} | {:.1f} | {} |", entries_[e].name, entries_[e].seconds, entries_[e].rounds);
      double log_speed = 0, log_regret = 0;
      for (size_t r = 0; r < kRows.size(); ++r) {
        double fastest = best[e][r];
        for (const auto& other : best) fastest = std::min(fastest, other[r]);
        fmt::print(" {:.3f} |", best[1][r] / best[e][r]);
        log_speed += std::log(best[1][r] / best[e][r]);
        log_regret += std::log(best[e][r] / fastest);
      }
      const auto n = static_cast<double>(kRows.size());
      fmt::print(" {:.3f} | {:.1f} % |\n", std::exp(log_speed / n),
                 100 * (std::exp(log_regret / n) - 1));
    }
  }

  const Isa isa_;
  const Options options_;
  const kernels::ProductSize size_;
  weight_node::ProductTimer timer_;
  const ScheduleTable analytic_;
  int64_t start_ns_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  larder::bench::Options options;
  return larder::bench::RunTable(
      argc, argv,
      {{"--inputs", &options.inputs, 64, 65536},
       {"--panels", &options.panels, 1, 1024},
       {"--mb", &options.mb, 1, 1024},
       {"--rounds", &options.rounds, 1, 100'000},
       {"--seconds", &options.seconds, 1, 3600}},
      [&](larder::kernels::Isa isa) { larder::bench::Ablation(isa, options).Run(); });
}
