// What moving KV chunks costs those who re-read weights from L3 meanwhile: the speed of plain
// passes over a buffer on one core while a KvMover on another core loads chunks from files or
// stores them, at its limited rates and without limits, against quiet passes before and after. The
// files are in the page cache; loads go to as many chunks of memory as one sequence has.
//   bench_kv_mover [--megabytes N] [--chunk-kb N] [--chunks N] [--rounds N] [--cpu N]
//                  [--folder-mb N]
// --megabytes: of the buffer, by default half of the smallest L3. --folder-mb: the most of files,
// in $TMPDIR or /tmp.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/scratch_folder.h"
#include "bench/ratio.h"
#include "bench/table_main.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/kv_mover.h"
#include "topology/host.h"
#include "topology/scattered_bytes.h"

namespace larder::bench {
namespace {

using pipeline::KvFiles;
using pipeline::KvJob;
using pipeline::KvMover;

constexpr size_t kPositions = 256;
constexpr double kQuietSeconds = 0.03;

struct Sizes {
  size_t megabytes = 0, chunk_kb = 4608, chunks = 8, rounds = 15, folder_mb = 512;
};

// Passes over a buffer, in seconds.
class Weights {
 public:
  explicit Weights(size_t bytes) : words_(bytes / sizeof(uint64_t), 1) {}
  double Pass() {
    const int64_t begin = NowNs();
    uint64_t sums[16] = {};
    for (size_t i = 0; i + 16 <= words_.size(); i += 16) {
      for (size_t k = 0; k < 16; ++k) sums[k] += words_[i + k];
    }
    benchmark::DoNotOptimize(std::accumulate(std::begin(sums), std::end(sums), uint64_t{0}));
    return SecondsSince(begin);
  }
  // The mean of passes while `more` says so.
  template <typename More>
  double MeanPass(More more) {
    double all = 0;
    size_t passes = 0;
    do {
      all += Pass();
      ++passes;
    } while (more());
    return all / static_cast<double>(passes);
  }
  size_t bytes() const { return words_.size() * sizeof(uint64_t); }

 private:
  std::vector<uint64_t> words_;
};

class Moving {
 public:
  Moving(const Sizes& sizes, const std::string& folder, bool limited, CpuId cpu)
      : sizes_(sizes),
        files_({.folder = folder,
                .most_bytes = sizes.folder_mb << 20,
                .model = 1,
                .chunk_positions = kPositions,
                .chunk_bytes = {sizes.chunk_kb << 10}}),
        memory_(sizes.chunks, std::vector<uint8_t>(sizes.chunk_kb << 10, 7)),
        mover_(files_, Options(limited, cpu)) {}

  // A sequence's chunks. sequence: with which number its tokens begin.
  void Start(KvJob::Kind kind, int32_t sequence) {
    KvJob job{.kind = kind, .slot = SlotId(0), .tokens = {}, .pieces = {}};
    job.tokens.resize(sizes_.chunks * kPositions);
    std::iota(job.tokens.begin(), job.tokens.end(), sequence);
    for (size_t i = 0; i < sizes_.chunks; ++i)
      job.pieces.push_back({.index = i,
                            .chunk = static_cast<uint32_t>(i),
                            .memory = topology::ScatteredBytes(memory_[i])});
    mover_.Start(std::move(job));
  }
  bool running() {
    while (const auto job = mover_.Take()) {
      if (job->done != sizes_.chunks) throw Error("a chunk was not moved");
    }
    return mover_.jobs() > 0;
  }
  size_t bytes() const { return sizes_.chunks * (sizes_.chunk_kb << 10); }

 private:
  static KvMover::Options Options(bool limited, CpuId cpu) {
    KvMover::Options options = {.cpus = {cpu}};
    // On the mover's thread; running() throws.
    options.on_problem = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
    if (!limited) options.read_bytes_per_s = options.write_bytes_per_s = 0;
    return options;
  }

  const Sizes sizes_;
  KvFiles files_;
  std::vector<std::vector<uint8_t>> memory_;
  KvMover mover_;  // last: its thread uses the others
};

void Row(const char* what, KvJob::Kind kind, bool limited, const Sizes& sizes, Weights& weights,
         CpuId cpu) {
  const ScratchFolder folder("larder-kv");
  Moving moving(sizes, folder.path() + "/kv", limited, cpu);
  int32_t sequence = 0;
  if (kind == KvJob::Kind::kLoad) {  // what is to be loaded again and again
    moving.Start(KvJob::Kind::kStore, 0);
    while (moving.running()) {
    }
  }
  const auto quiet = [&] {
    const int64_t begin = NowNs();
    return weights.MeanPass([&] { return SecondsSince(begin) < kQuietSeconds; });
  };
  std::vector<double> ratios, rates;
  double best_quiet = 1e9, best_beside = 1e9;
  quiet();
  for (size_t round = 0; round < sizes.rounds; ++round) {
    const double before = quiet();
    const int64_t begin = NowNs();
    const size_t jobs = kind == KvJob::Kind::kLoad && !limited ? 8 : 1;
    for (size_t i = 0; i < jobs; ++i)
      moving.Start(kind, kind == KvJob::Kind::kLoad ? 0 : ++sequence);
    const double beside = weights.MeanPass([&] { return moving.running(); });
    rates.push_back(static_cast<double>(jobs * moving.bytes()) / SecondsSince(begin) * 1e-9);
    const double after = quiet();
    ratios.push_back((before + after) / 2 / beside);
    best_quiet = std::min({best_quiet, before, after});
    best_beside = std::min(best_beside, beside);
  }
  fmt::print("| {} | {:.2f} | {:.1f} | {:.3f} | {:.3f} |\n", what, Median(rates),
             static_cast<double>(weights.bytes()) / best_quiet * 1e-9, Median(ratios),
             best_quiet / best_beside);
}

void Measure(Sizes sizes) {
  const std::vector<CpuId> cpus = Cpus(2);
  if (cpus[0] == cpus[1]) throw Error("one core: nothing can be moved beside what it reads");
  if (sizes.megabytes == 0) {
    size_t least = SIZE_MAX;
    for (const auto& group : Machine().l3_groups()) least = std::min(least, group.bytes);
    sizes.megabytes = std::max<size_t>(1, least / 2 >> 20);
  }
  Weights weights(sizes.megabytes << 20);
  fmt::print(
      "{}: passes over {} MB on one core while another moves {} chunks of {} KB; {} rounds, each "
      "beside quiet ones\n",
      topology::CpuName(), sizes.megabytes, sizes.chunks, sizes.chunk_kb, sizes.rounds);
  fmt::print(
      "| the mover | moves GB/s | passes, quiet, GB/s | beside it, median | best |\n"
      "|---|--:|--:|--:|--:|\n");
  for (const bool limited : {true, false}) {
    Row(limited ? "loads" : "loads without limit", KvJob::Kind::kLoad, limited, sizes, weights,
        cpus[1]);
    Row(limited ? "stores" : "stores without limit", KvJob::Kind::kStore, limited, sizes, weights,
        cpus[1]);
  }
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  larder::bench::Sizes sizes;
  return larder::bench::RunTable(argc, argv,
                                 {{"--megabytes", &sizes.megabytes, 1, 1 << 20},
                                  {"--chunk-kb", &sizes.chunk_kb, 4, 1 << 20},
                                  {"--chunks", &sizes.chunks, 1, 1024},
                                  {"--rounds", &sizes.rounds, 1, 10'000},
                                  {"--folder-mb", &sizes.folder_mb, 1, 1 << 20}},
                                 [&](larder::kernels::Isa) { larder::bench::Measure(sizes); });
}
