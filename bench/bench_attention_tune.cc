// What each size of an AttentionTuning is worth: every candidate and the default in alternating
// rounds of attention as the engine runs it (attention_node/attention_timer.h); time of the
// candidate / time of the default, best of each. Score products alone: bench_tune --inputs 64
// --panels 16 --mb 1.
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
    double best[2] = {1e9, 1e9};
  };
  std::vector<Entry> entries = {{"default", usual}};
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
  for (size_t round = 0; round < o.rounds; ++round) {
    for (size_t i = 0; i < entries.size(); ++i) {
      Entry& entry = entries[(i + round) % entries.size()];
      for (const size_t work : {0, 1})
        entry.best[work] =
            std::min(entry.best[work], timer.Round(entry.tuning, static_cast<AttentionWork>(work)));
    }
  }
  fmt::print(
      "{}, {}: {} query heads of {} elements a KV head, {} heads; {:.1f} us and {:.1f} us a "
      "token\n",
      topology::CpuName(), kernels::IsaName(isa), o.group, o.head, o.heads,
      1e6 * entries[0].best[0], 1e6 * entries[0].best[1]);
  fmt::print("| tuning | decode | prefill |\n|---|--:|--:|\n");
  for (const Entry& entry : entries)
    fmt::print("| {} | {:.3f} | {:.3f} |\n", entry.name, entry.best[0] / entries[0].best[0],
               entry.best[1] / entries[0].best[1]);
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
