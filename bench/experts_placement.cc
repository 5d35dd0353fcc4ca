// Where experts lie, planned, not timed: how many more bytes of the chosen experts' gate and up the
// fullest thread reads in a step than the mean does, for three placements:
//   all threads     every expert's rows over all threads (what Plans choose)
//   equal shares    the chosen ones' work divided anew each step (what Plans choose on one memory)
//   whole experts   each expert in one L3 group, over the threads of that group
// Rows choose experts by chance. The waits that this makes are the same share of the step's time.
//   experts_placement [--threads N] [--groups N] [--steps N]
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "model/synth/synth.h"
#include "weight_node/shard_plan.h"

namespace larder::bench {
namespace {

struct Options {
  size_t threads = 16, groups = 2, steps = 2000;
};

using weight_node::PanelMatrix;

// [thread]: units of each expert.
using Units = std::vector<std::vector<size_t>>;

Units OnAllThreads(const model::ModelConfig& config, size_t kind, const Options& o) {
  const size_t experts = config.kinds[kind].experts.count;
  Units units;
  for (const weight_node::ThreadShard& thread :
       weight_node::MakeShardPlan(config, o.threads).threads) {
    std::vector<size_t>& of = units.emplace_back(experts);
    const weight_node::PanelRange own = thread.of(kind, PanelMatrix::kFfn);
    for (uint32_t unit = own.begin; unit < own.end; ++unit) ++of[unit % experts];
  }
  return units;
}

Units InGroups(const model::ModelConfig& config, size_t kind, const Options& o) {
  const size_t experts = config.kinds[kind].experts.count, of_group = o.threads / o.groups;
  const size_t of_expert = weight_node::LayerShape(config.kinds[kind]).expert_units();
  Units units(o.threads, std::vector<size_t>(experts));
  for (size_t e = 0; e < experts; ++e) {
    for (size_t u = 0; u < of_expert; ++u)
      ++units[e % o.groups * of_group + (e / o.groups * of_expert + u) % of_group][e];
  }
  return units;
}

struct Fullest {
  double all_threads = 0, shares = 0, groups = 0;
};

Fullest FullestOf(const model::ModelConfig& config, size_t kind, size_t rows, const Options& o) {
  const model::ExpertSpec& experts = config.kinds[kind].experts;
  const Units all = OnAllThreads(config, kind, o), grouped = InGroups(config, kind, o);
  const size_t of_expert = weight_node::LayerShape(config.kinds[kind]).expert_units();
  std::minstd_rand random(1);
  std::vector<size_t> order(experts.count);
  for (size_t e = 0; e < experts.count; ++e) order[e] = e;
  Fullest sum;
  for (size_t step = 0; step < o.steps; ++step) {
    std::vector<bool> chosen(experts.count);
    for (size_t m = 0; m < rows; ++m) {
      for (size_t i = 0; i < experts.used; ++i) {
        std::swap(order[i], order[i + random() % (experts.count - i)]);
        chosen[order[i]] = true;
      }
    }
    const auto active = static_cast<size_t>(std::ranges::count(chosen, true));
    const double mean = static_cast<double>(active * of_expert) / static_cast<double>(o.threads);
    const auto most = [&](const Units& units) {
      size_t fullest = 0;
      for (const std::vector<size_t>& of : units) {
        size_t own = 0;
        for (size_t e = 0; e < experts.count; ++e) own += chosen[e] ? of[e] : 0;
        fullest = std::max(fullest, own);
      }
      return static_cast<double>(fullest) / mean;
    };
    sum.all_threads += most(all);
    sum.groups += most(grouped);
    sum.shares += static_cast<double>(CeilDiv(active * of_expert, o.threads)) / mean;
  }
  const auto steps = static_cast<double>(o.steps);
  return {sum.all_threads / steps, sum.shares / steps, sum.groups / steps};
}

void Print(const Options& o) {
  fmt::print("{} threads in {} L3 groups: bytes of the fullest thread / mean\n\n", o.threads,
             o.groups);
  fmt::print("| model | rows | all threads | equal shares | whole experts |\n");
  fmt::print("|---|--:|--:|--:|--:|\n");
  for (const char* name : {"bench-moe-20m", "bench-moe-440m", "qwen3-30b-a3b", "mixtral-8x7b",
                           "gpt-oss-20b", "qwen3-next-80b-a3b", "deepseek-v2-lite"}) {
    const model::ModelConfig config = model::ConfigOfShape(model::ShapeByName(name), name);
    const size_t kind = config.KindOf(config.layers - 1);
    for (const size_t rows : {1, 8, 32}) {
      const Fullest of = FullestOf(config, kind, rows, o);
      fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} |\n", name, rows, of.all_threads, of.shares,
                 of.groups);
    }
  }
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  larder::bench::Options options;
  const auto usage = [] {
    fmt::print(stderr, "usage: experts_placement [--threads N] [--groups N] [--steps N]\n");
    return 1;
  };
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    size_t* value = name == "--threads"  ? &options.threads
                    : name == "--groups" ? &options.groups
                    : name == "--steps"  ? &options.steps
                                         : nullptr;
    if (value == nullptr || i + 1 == argc) return usage();
    const char* end = argv[i + 1] + std::strlen(argv[i + 1]);
    if (std::from_chars(argv[i + 1], end, *value).ptr != end || *value == 0) return usage();
  }
  if (options.threads % options.groups != 0) return usage();
  larder::bench::Print(options);
}
