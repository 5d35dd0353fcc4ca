// Every panel format beside Q8_0: the speed of products of the same number of weights, from a cache
// and with a number of rows, as a ratio to Q8_0's. The rounds of all formats alternate; the best
// round of each counts.
//   bench_formats [--isa NAME] [--rounds N] [--thousands N] [--cpu N]
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/product_data.h"
#include "bench/ratio.h"
#include "bench/table_main.h"
#include "kernels/formats/panel_format.h"
#include "kernels/gemm/gemm.h"
#include "topology/host.h"

namespace larder::bench {
namespace {

using kernels::Isa;
using kernels::PanelFormat;

constexpr size_t kInputs = 2048;
constexpr double kRoundSeconds = 200e-6;  // long against a clock reading, short against a time
                                          // slice
constexpr size_t kRowCounts[] = {1, 2, 4, 8, 32, 256};

// The products of one format: `thousands` of 1,000 weights, again and again.
class FormatRun {
 public:
  FormatRun(Isa isa, const PanelFormat& format, size_t thousands)
      : panels_({kInputs / kernels::kBlock, format},
                std::max<size_t>(1, thousands * 1000 / kPanelWeights), 1),
        rows_(*std::max_element(std::begin(kRowCounts), std::end(kRowCounts)), panels_.blocks(),
              Outputs()) {
    gemm_ = kernels::Gemm::Make(isa,
                                {.panel = panels_.shape(),
                                 .x_stride_bytes = kernels::ActRowBytes(panels_.blocks()),
                                 .y_stride_bytes = Outputs() * sizeof(float)},
                                kernels::DefaultTuning(isa));
    for (const size_t m : kRowCounts) {
      size_t turns = 1;
      while (Seconds(m, turns) < kRoundSeconds) turns *= 2;
      turns_.push_back(turns);
      best_seconds_.push_back(1e9);
    }
  }
  void Round() {
    Seconds(1, 1);  // the other formats' weights were in the cache
    for (size_t i = 0; i < turns_.size(); ++i) {
      const double turns = static_cast<double>(turns_[i]);
      best_seconds_[i] = std::min(best_seconds_[i], Seconds(kRowCounts[i], turns_[i]) / turns);
    }
  }
  const PanelFormat& format() const { return panels_.shape().format; }
  double best_seconds(size_t i) const { return best_seconds_[i]; }
  size_t bytes() const { return panels_.shard_bytes(); }

 private:
  static constexpr size_t kPanelWeights = kernels::kPanelRows * kInputs;
  size_t Outputs() const { return panels_.n_panels() * kernels::kPanelRows; }
  double Seconds(size_t m, size_t turns) {
    const int64_t start = NowNs();
    for (size_t i = 0; i < turns; ++i)
      gemm_.Run(panels_.shard(0), rows_.x(), rows_.y(), panels_.n_panels(), m);
    return SecondsSince(start);
  }

  Panels panels_;
  Rows rows_;
  kernels::Gemm gemm_;
  std::vector<size_t> turns_;  // for each number of rows
  std::vector<double> best_seconds_;
};

void Measure(Isa isa, size_t rounds, size_t thousands) {
  std::vector<FormatRun> runs;
  for (const PanelFormat* format : kernels::kPanelFormats)
    runs.emplace_back(isa, *format, thousands);
  for (size_t round = 0; round < rounds; ++round) {
    for (FormatRun& run : runs) run.Round();
  }
  fmt::print(
      "{}, {}: {} inputs, {:.2f} MB of Q8_0; speed against Q8_0, best of {} alternating rounds\n",
      topology::CpuName(), kernels::IsaName(isa), kInputs,
      static_cast<double>(runs[0].bytes()) / 1e6, rounds);
  fmt::print("| format | bits a weight |");
  for (const size_t m : kRowCounts) fmt::print(" {} row{} |", m, m == 1 ? "" : "s");
  fmt::print("\n|---|--:|");
  for (size_t i = 0; i < std::size(kRowCounts); ++i) fmt::print("--:|");
  fmt::print("\n");
  fmt::print("| q8_0, GB/s | 8.5 |");
  for (size_t i = 0; i < std::size(kRowCounts); ++i)
    fmt::print(" {:.1f} |", static_cast<double>(runs[0].bytes()) / runs[0].best_seconds(i) * 1e-9);
  fmt::print("\n");
  for (const FormatRun& run : runs) {
    if (&run == &runs[0]) continue;
    const double weights =
        static_cast<double>(runs[0].bytes()) / (kernels::kQ8Panel.group_bytes() / 1024.0);
    fmt::print("| {} | {:.3g} |", run.format().name,
               8 * static_cast<double>(run.bytes()) / weights);
    for (size_t i = 0; i < std::size(kRowCounts); ++i)
      fmt::print(" {:.2f} |", runs[0].best_seconds(i) / run.best_seconds(i));
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  size_t rounds = 100, thousands = 4000;
  return larder::bench::RunTable(
      argc, argv, {{"--rounds", &rounds, 1, 1'000'000}, {"--thousands", &thousands, 1, 1'000'000}},
      [&](larder::kernels::Isa isa) { larder::bench::Measure(isa, rounds, thousands); });
}
