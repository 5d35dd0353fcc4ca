// Matrix products over packed panels on one pinned core: GEMV and GEMM over a shard that stays in
// the cache and over shards read from DRAM, for every instruction set of the host. Limits: plain
// reads of the same shard, and the core's peak rate of integer multiply-adds.
#include <benchmark/benchmark.h>

#include <memory>

#include "bench/bench_main.h"
#include "bench/product_data.h"
#include "bench/ratio.h"
#include "kernels/formats/panel_format.h"
#include "kernels/gemm/gemm.h"
#include "kernels/tune/vnni_peak.h"
#include "topology/probe.h"
#include "topology/sysfs.h"

namespace larder::bench {
namespace {

using benchmark::State;
using kernels::Isa;

constexpr size_t kMb = size_t{1} << 20;
constexpr double kLimitSeconds = 0.03;
constexpr size_t kEvictedShardMb = 7;

// As many panels as a shard of that size has.
size_t PanelCount(size_t k, size_t shard_mb) {
  return std::max<size_t>(1, shard_mb * kMb / kernels::PanelShape{k / kernels::kBlock}.bytes());
}

kernels::Gemm MakeGemm(Isa isa, const Panels& panels) {
  return kernels::Gemm::Make(
      isa,
      {.panel = panels.shape(),
       .x_stride_bytes = kernels::ActRowBytes(panels.blocks()),
       .y_stride_bytes = panels.n_panels() * kernels::kPanelRows * sizeof(float),
       .accumulate = false},
      kernels::DefaultTuning(isa));
}

// The size of a region larger than all caches: 512 MB, or four times a large L3, limited by
// available memory.
size_t EvictedMb() {
  const size_t wanted = std::max<size_t>(512, 4 * Machine().total_l3_bytes() / kMb);
  const size_t allowed = topology::AvailableMemoryBytes().value_or(size_t{4} << 30) / kMb / 4;
  return std::min(wanted, allowed);
}

// One region at a time, reused between rows, since making it takes longer than a row. Its read
// bandwidth takes several seconds for all access patterns and is measured once.
struct Evicted {
  std::unique_ptr<Panels> panels;
  double read_gbps = 0;
};
const Evicted& EvictedPanels(size_t k) {
  static Evicted evicted;
  if (!evicted.panels || evicted.panels->blocks() != k / kernels::kBlock) {
    evicted.panels.reset();
    evicted.panels = std::make_unique<Panels>(k, PanelCount(k, kEvictedShardMb),
                                              std::max<size_t>(2, EvictedMb() / kEvictedShardMb));
    evicted.read_gbps = topology::ReadBandwidthGbps(evicted.panels->bytes(), 0);
  }
  return evicted;
}

void SetOps(State& state, const Stopwatch& watch, const Panels& panels, size_t m, double peak) {
  const double ops = 2.0 * static_cast<double>(panels.n_panels() * kernels::kPanelRows *
                                               panels.blocks() * kernels::kBlock * m);
  SetRate(state, watch, "GOP/s", ops, peak, "of peak");
}

// m rows over one shard, repeatedly.
void Resident(State& state, Isa isa, size_t k, size_t shard_mb, size_t m) {
  const Pinned pinned(Cpus(1)[0]);
  const Panels panels(k, PanelCount(k, shard_mb), 1);
  const Rows rows(m, panels.blocks(), panels.n_panels() * kernels::kPanelRows);
  const kernels::Gemm gemm = MakeGemm(isa, panels);
  double read = topology::ReadBandwidthGbps(panels.bytes(), kLimitSeconds);
  double peak = kernels::PeakGops(isa, kLimitSeconds);
  gemm.Run(panels.shard(0), rows.x(), rows.y(), panels.n_panels(), m);
  Stopwatch watch(state);
  for (auto _ : state) {
    watch.Time([&] { gemm.Run(panels.shard(0), rows.x(), rows.y(), panels.n_panels(), m); });
    benchmark::ClobberMemory();
  }
  peak = std::max(peak, kernels::PeakGops(isa, kLimitSeconds));
  read = std::max(read, topology::ReadBandwidthGbps(panels.bytes(), kLimitSeconds));
  SetRate(state, watch, "GB/s", static_cast<double>(panels.shard_bytes()), read, "of read");
  if (m > 1) SetOps(state, watch, panels, m, peak);
}

// Each iteration takes the next shard of a region larger than all caches.
void Evict(State& state, Isa isa, size_t k, size_t m) {
  const Pinned pinned(Cpus(1)[0]);
  const Evicted& evicted = EvictedPanels(k);
  const Panels& panels = *evicted.panels;
  const Rows rows(m, panels.blocks(), panels.n_panels() * kernels::kPanelRows);
  const kernels::Gemm gemm = MakeGemm(isa, panels);
  const double peak = kernels::PeakGops(isa, kLimitSeconds);
  static size_t next = 0;  // static, since a call's last shards are still cached in the next call
  Stopwatch watch(state);
  for (auto _ : state) {
    const uint8_t* shard = panels.shard(next++ % panels.shards());
    watch.Time([&] { gemm.Run(shard, rows.x(), rows.y(), panels.n_panels(), m); });
    benchmark::ClobberMemory();
  }
  SetRate(state, watch, "GB/s", static_cast<double>(panels.shard_bytes()), evicted.read_gbps,
          "of read");
  if (m > 1) SetOps(state, watch, panels, m, peak);
}

benchmark::internal::Benchmark* Row(const std::string& name, void (*run)(State&, Isa), Isa isa) {
  return benchmark::RegisterBenchmark(name.c_str(), run, isa)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void RegisterAll() {
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvxVnni, Isa::kAvx2, Isa::kScalar}) {
    if (!kernels::HostHas(isa)) continue;
    const std::string name(kernels::IsaName(isa));
    const bool fast = isa != Isa::kScalar;  // the scalar oracle has only a few rows, for scale
    const std::vector<int64_t> depths =
        fast ? std::vector<int64_t>{1024, 2048, 2816, 4096, 8192} : std::vector<int64_t>{2048};
    const std::vector<int64_t> shards =
        fast ? std::vector<int64_t>{3, 7, 12} : std::vector<int64_t>{3};
    Row(
        "gemv/resident/" + name,
        [](State& s, Isa i) {
          Resident(s, i, static_cast<size_t>(s.range(0)), static_cast<size_t>(s.range(1)), 1);
        },
        isa)
        ->ArgNames({"K", "MB"})
        ->ArgsProduct({depths, shards});
    Row(
        "gemm/resident/" + name,
        [](State& s, Isa i) {
          Resident(s, i, static_cast<size_t>(s.range(0)), kEvictedShardMb,
                   static_cast<size_t>(s.range(1)));
        },
        isa)
        ->ArgNames({"K", "m"})
        ->ArgsProduct({fast ? std::vector<int64_t>{1024, 2816} : std::vector<int64_t>{1024},
                       fast ? std::vector<int64_t>{2, 3, 4, 6, 8, 12, 16, 24, 32, 128}
                            : std::vector<int64_t>{8}});
    if (!fast) continue;
    Row(
        "gemv/evicted/" + name,
        [](State& s, Isa i) { Evict(s, i, static_cast<size_t>(s.range(0)), 1); }, isa)
        ->ArgNames({"K"})
        ->ArgsProduct({{2048, 8192}});
    Row(
        "gemm/evicted/" + name,
        [](State& s, Isa i) { Evict(s, i, 2048, static_cast<size_t>(s.range(0))); }, isa)
        ->ArgNames({"m"})
        ->ArgsProduct({{8, 32, 128}});
  }
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  return larder::bench::RunBenchmarks(argc, argv, larder::bench::RegisterAll);
}
