#include "node/tasks/tune_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "attention_node/attention_timer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "topology/affinity.h"
#include "weight_node/product_timer.h"
#include "weight_node/shard_plan.h"

namespace larder::node::inline tasks {
namespace {

// Fewer panels do not fill the largest tile.
constexpr size_t kFewestPanels = 8, kMostPanels = 64;
// KV heads of 2,048 positions: more than an L2 holds.
constexpr size_t kMostHeads = 16;

std::string Ahead(const kernels::TileSpec& tile) {
  if (tile.prefetch == kernels::Prefetch::kNone) return "-";
  return fmt::format("{} +{}", kernels::Name(tile.prefetch), tile.prefetch_bytes);
}

std::string SliceText(const kernels::SliceSpec& slice) {
  const auto part = [](size_t n, bool all) {
    return all ? std::string("all") : fmt::format("{}", n);
  };
  return fmt::format("{} x {} x {}{}", part(slice.rows, slice.rows == SIZE_MAX),
                     part(slice.panels, slice.panels == 0),
                     part(slice.blocks, slice.blocks == kernels::kSumBlocks),
                     slice.unpacked ? ", unpacked" : "");
}

}  // namespace

TuneWork WorkOf(const model::ModelConfig& config, size_t threads) {
  // By type and blocks of inputs: the panels of all threads, of the layers' largest matrix.
  std::map<std::pair<model::TensorType, size_t>, size_t> panels;
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const weight_node::LayerPanels of(config, layer);
    const model::LayerSizes& sizes = config.layer(layer).sizes;
    const auto add = [&](const kernels::PanelShape& panel, size_t outputs) {
      size_t& most = panels[{panel.format.type, panel.blocks}];
      most = std::max(most, CeilDiv(outputs, kernels::kPanelRows));
    };
    using enum weight_node::PanelMatrix;
    add(of.of(kQkv, 0), of.all(kQkv).count() * kernels::kPanelRows);
    add(of.of(kQkv, of.all(kQkv).end - 1), sizes.kv_rows());
    add(of.of(kO, 0), config.dim);
    if (!config.layer(layer).has_ffn()) continue;
    add(of.of(kFfn, 0), (config.layer(layer).gated() ? 2 : 1) * sizes.ffn);
    add(of.of(kDown, 0), config.dim);
  }
  TuneWork work;
  for (const auto& [of, n] : panels)
    work.products.push_back({{of.second, kernels::PanelFormatOf(of.first)},
                             std::clamp(CeilDiv(n, threads), kFewestPanels, kMostPanels)});
  const uint64_t bytes = weight_node::MakeShardPlan(config, threads).MostThreadBytes(config);
  work.weight_bytes = std::min<uint64_t>(bytes, kernels::KernelTuning::kMostTunedBytes);
  // By size and query heads of a KV head: the KV heads of a thread.
  std::map<std::pair<size_t, size_t>, size_t> heads;
  for (size_t layer = 0; layer < config.layers; ++layer) {
    if (!config.layer(layer).attends()) continue;
    const model::LayerSizes& sizes = config.layer(layer).sizes;
    heads[{sizes.head_size, sizes.group()}] += sizes.kv_heads;
  }
  for (const auto& [size, count] : heads)
    work.heads.push_back({size.first, size.second, std::min(CeilDiv(count, threads), kMostHeads)});
  return work;
}

TuneWork UsualWork() {
  TuneWork work{.weight_bytes = kernels::KernelTuning::kMostTunedBytes};
  for (const size_t inputs : {1024, 2048, 4096, 8192})
    work.products.push_back({{inputs / kernels::kBlock}, 32});
  for (const size_t head_size : {64, 128}) work.heads.push_back({head_size, 4, kMostHeads});
  return work;
}

TuneResult Tune(kernels::Isa isa, const TuneWork& work, double seconds, CpuId cpu, NumaNodeId node,
                const std::function<void(size_t, size_t)>& report) {
  topology::PinThisThread(cpu);
  const int64_t start = NowNs();
  const size_t all = work.products.size() + work.heads.size();
  size_t done = 0;
  // Each has an equal share of the time that those before it have left.
  const auto next = [&] {
    if (report) report(done, all);
    kernels::SearchOptions options;
    options.clock = [start] { return SecondsSince(start); };
    options.seconds = (seconds - options.clock()) / static_cast<double>(all - done++);
    return options;
  };
  TuneResult result;
  const kernels::KernelTuning untuned = kernels::DefaultTuning(isa);
  // Attention first: its search ends early, unless the time is very short.
  for (const TuneWork::Heads& heads : work.heads) {
    const kernels::SearchOptions options = next();
    attention_node::AttentionTimer timer(isa, heads.head_size, heads.group, heads.count, node);
    result.heads.push_back(
        kernels::SearchAttention(isa, timer.size(), untuned.attention, timer, options));
  }
  for (const kernels::ProductSize& product : work.products) {
    const kernels::SearchOptions options = next();
    weight_node::ProductTimer timer(isa, product, work.weight_bytes, node);
    result.products.push_back(kernels::SearchSchedules(
        isa, product, untuned.For(product.panel, work.weight_bytes), timer, options));
  }
  return result;
}

std::string TuneText(const TuneWork& work, const TuneResult& result) {
  constexpr const char* kRow = "| {:<7} | {:>4} | {:>6} | {:<9} | {:>32} | {:<9} | {:>6} |\n";
  std::string text;
  // The schedule of products of so many rows.
  const auto row = [&](std::string_view what, size_t rows, const kernels::ScheduleTable& table,
                       double gain) {
    const auto& [tile, slice] = table[rows];
    text +=
        fmt::format(fmt::runtime(kRow), what, rows, fmt::format("{} x {}", tile.rows, tile.panels),
                    kernels::Name(tile.load), SliceText(slice), Ahead(tile),
                    gain == 1 ? "-" : fmt::format("{:.1f} %", 100 * (gain - 1)));
  };
  const auto head = [&] {
    text += fmt::format(fmt::runtime(kRow), "", "rows", "tile", "loads", "rows x panels x blocks",
                        "ahead", "gain");
    text +=
        "|---------|-----:|-------:|-----------|---------------------------------:|-----------|"
        "-------:|\n";
  };
  const auto end = [&](bool out_of_time) {
    if (out_of_time)
      text += "The time was too short to look at all of them; give more --seconds.\n";
    text += "\n";
  };
  for (size_t i = 0; i < result.products.size(); ++i) {
    const auto& [panel, n_panels] = work.products[i];
    text += fmt::format("{}, {} inputs, {} panels of {:.1f} MB a thread:\n", panel.format.name,
                        panel.blocks * kernels::kBlock, n_panels,
                        static_cast<double>(work.weight_bytes) / 1e6);
    head();
    for (const auto& of : result.products[i].classes)
      row("product", of.rows, result.products[i].table, of.gain);
    end(result.products[i].out_of_time);
  }
  for (size_t i = 0; i < result.heads.size(); ++i) {
    const auto& [head_size, group, count] = work.heads[i];
    const auto& [tuning, gain, out_of_time] = result.heads[i];
    text += fmt::format(
        "attention, {} query heads of {} elements a KV head: {} sums of values in registers, {} "
        "queries a kernel of values, {} a tile; the scores' schedules, and the gain of the "
        "whole:\n",
        group, head_size, tuning.value_sums, tuning.value_queries, tuning.tile_queries);
    head();
    const kernels::HeadSize size{CeilDiv(head_size, kernels::kBlock), group};
    for (const auto of : {kernels::AttentionWork::kDecode, kernels::AttentionWork::kPrefill}) {
      const auto at = static_cast<size_t>(of);
      row(kernels::kAttentionWorkNames[at], size.score_queries(tuning, of), tuning.scores,
          gain[at]);
    }
    end(out_of_time);
  }
  return text;
}

}  // namespace larder::node::tasks
