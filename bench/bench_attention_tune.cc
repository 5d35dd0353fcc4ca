// What each size of an AttentionTuning is worth: every candidate against the default in pairs of
// rounds of attention as the engine runs it (attention_node/attention_timer.h); the median of the
// pairs' ratios, time of the candidate / time of the default. Score products alone: bench_tune
// --inputs 64 --panels 16 --mb 1.
//   bench_attention_tune [--head N] [--group N] [--heads N] [--rounds N] [--isa NAME] [--cpu N]
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attention_node/attention_timer.h"
#include "bench/ratio.h"
#include "bench/table_main.h"
#include "kernels/formats/tuning.h"
#include "topology/host.h"

namespace larder::bench {
namespace {

using kernels::AttentionTuning;
using kernels::AttentionWork;

struct Options {
  size_t head = 64, group = 4, heads = 16, rounds = 60;
};

void Measure(kernels::Isa isa, const Options& o) {
  attention_node::AttentionTimer timer(isa, o.head, o.group, o.heads,
                                       Machine().core(Machine().PickCores(1)[0]).numa_node);
  const AttentionTuning usual = kernels::DefaultTuning(isa).attention;
  struct Entry {
    std::string name;
    AttentionTuning tuning;
    std::vector<double> ratios[2] = {};  // by work
  };
  std::vector<Entry> entries = {{"default against itself", usual}};
  const auto add = [&](std::string name, const AttentionTuning& tuning) {
    if (kernels::WhyNotFit(isa, tuning).empty() && !(tuning == usual))
      entries.push_back({std::move(name), tuning});
  };
  for (const size_t sums : {6, 8, 12, 16, 20, 24, 26, 28, 29, 30}) {
    AttentionTuning to = usual;
    to.value_sums = sums;
    to.value_queries = std::min(sums, to.value_queries);
    add(fmt::format("{} sums", sums), to);
  }
  for (const size_t queries : {2, 3, 4, 6, 7, 8, 10, 12, 14, 16}) {
    AttentionTuning to = usual;
    to.value_queries = queries;
    add(fmt::format("{} queries of values", queries), to);
  }
  for (const size_t queries : {8, 12, 14, 28, 42, 56, 64, 84, 112, 128, 168, 256}) {
    AttentionTuning to = usual;
    to.tile_queries = queries;
    add(fmt::format("tiles of {} queries", queries), to);
  }
  // Keys are in L2 when their scores are computed: the values of the chunk before fetch them.
  for (const size_t bytes : {0, 512, 1024, 2048}) {
    AttentionTuning to = usual;
    for (kernels::Schedule& of : to.scores.of)
      of.tile =
          of.tile.Fetching(bytes > 0 ? kernels::Prefetch::kT0 : kernels::Prefetch::kNone, bytes);
    add(fmt::format("scores fetch {} bytes ahead", bytes), to);
  }
  double best[2] = {1e9, 1e9};  // the default's best times
  for (size_t round = 0; round < o.rounds; ++round) {
    for (Entry& entry : entries) {
      for (const size_t at : {0, 1}) {
        const auto work = static_cast<AttentionWork>(at);
        double of_usual = 0, of_entry = 0;
        if (round % 2 == 0) of_usual = timer.Round(usual, work);
        of_entry = timer.Round(entry.tuning, work);
        if (round % 2 == 1) of_usual = timer.Round(usual, work);
        best[at] = std::min(best[at], of_usual);
        entry.ratios[at].push_back(of_entry / of_usual);
      }
    }
  }
  fmt::print(
      "{}, {}: {} query heads of {} elements a KV head, {} KV heads; a token takes {:.1f} us in "
      "decode, {:.1f} us in prefill\n",
      topology::CpuName(), kernels::IsaName(isa), o.group, o.head, o.heads, 1e6 * best[0],
      1e6 * best[1]);
  fmt::print("| tuning | decode | prefill |\n|---|--:|--:|\n");
  for (Entry& entry : entries) {
    for (std::vector<double>& ratios : entry.ratios) std::sort(ratios.begin(), ratios.end());
    fmt::print("| {} | {:.3f} | {:.3f} |\n", entry.name, entry.ratios[0][o.rounds / 2],
               entry.ratios[1][o.rounds / 2]);
  }
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  larder::bench::Options o;
  return larder::bench::RunTable(argc, argv,
                                 {{"--head", &o.head, 1, 256},
                                  {"--group", &o.group, 1, 64},
                                  {"--heads", &o.heads, 1, 256},
                                  {"--rounds", &o.rounds, 1, 1'000'000}},
                                 [&](larder::kernels::Isa isa) { larder::bench::Measure(isa, o); });
}
