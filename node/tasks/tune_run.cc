#include "node/tasks/tune_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/memory.h"
#include "topology/affinity.h"
#include "weight_node/product_timer.h"
#include "weight_node/shard_plan.h"

namespace larder::node::inline tasks {
namespace {

// Fewer panels do not fill the largest tile.
constexpr size_t kFewestPanels = 8, kMostPanels = 64;

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
  const weight_node::LayerShape shape(config);
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const weight_node::LayerPanels of(config, layer);
    const auto add = [&](const kernels::PanelShape& panel, size_t outputs) {
      size_t& most = panels[{panel.format.type, panel.blocks}];
      most = std::max(most, CeilDiv(outputs, kernels::kPanelRows));
    };
    using enum weight_node::PanelMatrix;
    add(of.of(kQkv, 0), config.q_rows() + 2 * config.kv_rows());
    add(of.of(kQkv, shape.qkv_panels - 1), config.kv_rows());
    add(of.of(kO, 0), config.dim);
    add(of.of(kFfn, 0), 2 * config.ffn);
    add(of.of(kDown, 0), config.dim);
  }
  TuneWork work;
  for (const auto& [of, n] : panels)
    work.products.push_back({{of.second, kernels::PanelFormatOf(of.first)},
                             std::clamp(CeilDiv(n, threads), kFewestPanels, kMostPanels)});
  const uint64_t bytes = weight_node::MakeShardPlan(config, threads).MostThreadBytes(config);
  work.weight_bytes = std::min<uint64_t>(bytes, kernels::KernelTuning::kMostTunedBytes);
  return work;
}

TuneWork UsualWork() {
  TuneWork work{.products = {}, .weight_bytes = kernels::KernelTuning::kMostTunedBytes};
  for (const size_t inputs : {1024, 2048, 4096, 8192})
    work.products.push_back({{inputs / kernels::kBlock}, 32});
  return work;
}

std::vector<Tuned> Tune(kernels::Isa isa, const TuneWork& work, double seconds, CpuId cpu,
                        NumaNodeId node, const std::function<void(size_t, size_t)>& report) {
  topology::PinThisThread(cpu);
  const int64_t start = NowNs();
  const kernels::ScheduleTable analytic = kernels::AnalyticSchedules(isa, kernels::HostCore());
  std::vector<Tuned> all;
  for (const kernels::ProductSize& product : work.products) {
    if (report) report(all.size(), work.products.size());
    weight_node::ProductTimer timer(isa, product, work.weight_bytes, node);
    kernels::SearchOptions options;
    options.clock = [&] { return SecondsSince(start); };
    options.seconds =
        (seconds - options.clock()) / static_cast<double>(work.products.size() - all.size());
    all.push_back({product, kernels::SearchSchedules(isa, product, analytic, timer, options)});
  }
  return all;
}

std::string TuneText(const std::vector<Tuned>& all, size_t weight_bytes) {
  std::string text;
  for (const auto& [product, result] : all) {
    text += fmt::format("{}, {} inputs, {} panels of {:.1f} MB a thread:\n",
                        product.panel.format.name, product.panel.blocks * kernels::kBlock,
                        product.n_panels, static_cast<double>(weight_bytes) / 1e6);
    text += fmt::format("| {:>4} | {:>6} | {:<9} | {:>32} | {:<9} | {:>6} |\n", "rows", "tile",
                        "loads", "rows x panels x blocks", "ahead", "gain");
    text +=
        "|-----:|-------:|-----------|---------------------------------:|-----------|-------:|\n";
    for (const auto& of : result.classes) {
      const auto& [tile, slice] = result.table[of.rows];
      text += fmt::format("| {:>4} | {:>6} | {:<9} | {:>32} | {:<9} | {:>6} |\n", of.rows,
                          fmt::format("{} x {}", tile.rows, tile.panels), kernels::Name(tile.load),
                          SliceText(slice), Ahead(tile),
                          of.gain == 1 ? "-" : fmt::format("{:.1f} %", 100 * (of.gain - 1)));
    }
    if (result.out_of_time)
      text += "The time was too short to look at all of them; give more --seconds.\n";
    text += "\n";
  }
  return text;
}

}  // namespace larder::node::tasks
