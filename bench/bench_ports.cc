// What the ports of this CPU allow: every tile of the matrix product that fits the registers, on
// data in L1, against the core's peak of integer multiply-adds in the same run. The rounds of all
// tiles and of the peak alternate, and the best round of each counts: neighbours slow down single
// rounds, not all of them. A bound for bench_gemm, which has memory besides, and for the engine,
// which has everything.
//   bench_ports [--isa NAME] [--rounds N] [--cpu N]
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "bench/product_data.h"
#include "bench/ratio.h"
#include "bench/table_main.h"
#include "kernels/formats/panel_format.h"
#include "kernels/gemm/gemm.h"
#include "kernels/tune/schedule_search.h"
#include "kernels/tune/vnni_peak.h"
#include "topology/host.h"

namespace larder::bench {
namespace {

using kernels::Isa;
using kernels::KernelTuning;
using kernels::TileSpec;

constexpr size_t kDefaultL1Bytes = 32 * 1024;
// Long against a clock reading, short against a time slice.
constexpr double kRoundSeconds = 100e-6;

// One tile over panels that fit L1, again and again.
class TileRun {
 public:
  TileRun(Isa isa, const TileSpec& tile, size_t l1_bytes)
      : tile_(tile),
        panels_(BlocksOf(tile, l1_bytes) * kernels::kBlock, tile.panels, 1),
        rows_(tile.rows, panels_.blocks(), tile.panels * kernels::kPanelRows) {
    KernelTuning tuning = kernels::DefaultTuning(isa);
    tuning.products.Fill({tile, {}});
    gemm_ =
        kernels::Gemm::Make(isa,
                            {.panel = panels_.shape(),
                             .x_stride_bytes = kernels::ActRowBytes(panels_.blocks()),
                             .y_stride_bytes = tile.panels * kernels::kPanelRows * sizeof(float)},
                            tuning);
    while (Seconds() < kRoundSeconds) turns_ *= 2;
  }

  // One round: turns_ products.
  void Round() { best_gops_ = std::max(best_gops_, Ops() / Seconds() * 1e-9); }
  double best_gops() const { return best_gops_; }
  const TileSpec& tile() const { return tile_; }
  size_t blocks() const { return panels_.blocks(); }

 private:
  // As many as let weights and activations fill 7/8 of L1; outputs take the rest.
  static size_t BlocksOf(const TileSpec& tile, size_t l1_bytes) {
    const size_t block_bytes =
        tile.panels * kernels::kQ8Panel.group_bytes() / 2 + tile.rows * sizeof(kernels::ActBlock);
    return std::clamp<size_t>(l1_bytes * 7 / 8 / block_bytes / 2 * 2, 2, kernels::kSumBlocks);
  }
  double Ops() const {
    return 2.0 * static_cast<double>(turns_ * tile_.rows * tile_.panels * kernels::kPanelRows *
                                     panels_.blocks() * kernels::kBlock);
  }
  double Seconds() {
    const int64_t start = NowNs();
    for (size_t i = 0; i < turns_; ++i)
      gemm_.Run(panels_.shard(0), rows_.x(), rows_.y(), tile_.panels, tile_.rows);
    return SecondsSince(start);
  }

  TileSpec tile_;
  Panels panels_;
  Rows rows_;
  kernels::Gemm gemm_;
  size_t turns_ = 1;
  double best_gops_ = 0;
};

void Measure(Isa isa, size_t rounds) {
  const long known = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  const size_t l1 = known > 0 ? static_cast<size_t>(known) : kDefaultL1Bytes;
  std::vector<TileRun> runs;
  for (const TileSpec& tile : kernels::TilesFor(isa, TileSpec::kMaxRows))
    runs.emplace_back(isa, tile.WithoutPrefetch(), l1);  // all data is in L1
  double peak = 0;
  for (size_t round = 0; round < rounds; ++round) {
    peak = std::max(peak, kernels::PeakGops(isa, 0));
    for (TileRun& run : runs) run.Round();
  }
  fmt::print("{}, {}: peak {:.0f} GOP/s; data in L1 ({} KB), best of {} alternating rounds\n",
             topology::CpuName(), kernels::IsaName(isa), peak, l1 / 1024, rounds);
  fmt::print("| rows x panels | activations | blocks | GOP/s | of peak |\n|---|---|--:|--:|--:|\n");
  std::stable_sort(runs.begin(), runs.end(), [](const TileRun& a, const TileRun& b) {
    return a.best_gops() > b.best_gops();
  });
  for (const TileRun& run : runs) {
    fmt::print("| {} x {} | {} | {} | {:.0f} | {:.1f} % |\n", run.tile().rows, run.tile().panels,
               kernels::Name(run.tile().load), run.blocks(), run.best_gops(),
               100 * run.best_gops() / peak);
  }
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  size_t rounds = 300;
  return larder::bench::RunTable(
      argc, argv, {{"--rounds", &rounds, 1, 1'000'000}},
      [&](larder::kernels::Isa isa) { larder::bench::Measure(isa, rounds); });
}
