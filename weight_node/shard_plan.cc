#include "weight_node/shard_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"
#include "threadpool/share.h"

namespace larder::weight_node {

using kernels::kBlock;
using kernels::kPanelRows;
using model::TensorRole;

namespace {

// 0 of a matrix that the layer does not have.
size_t BlocksOf(const model::LayerSpec& layer, TensorRole role) {
  return layer.Has(role) ? CeilDiv(layer.tensor(role).cols, kBlock) : 0;
}
size_t PanelsOf(const model::LayerSpec& layer, TensorRole role) {
  return layer.Has(role) ? CeilDiv(layer.tensor(role).rows, kPanelRows) : 0;
}
bool HasQueryUp(const model::LayerSpec& layer) { return layer.latent.query_rank != 0; }
size_t RowsOfGroup(const model::LayerSpec& layer, size_t group) {
  size_t sum = 0;
  for (const model::RowsOfRole& rows : model::RowsOfHead(layer, group)) sum += rows.rows;
  return sum;
}

// The runs of a KV head's panels, format(role) being the format of a matrix; empty: some panel has
// rows of two formats.
template <typename Format>
std::vector<MatrixPanels::Run> RunsOfGroup(const model::LayerSpec& layer, size_t group,
                                           size_t dim_blocks, Format format) {
  std::vector<MatrixPanels::Run> runs;
  size_t row = 0;
  for (const model::RowsOfRole& of : model::RowsOfHead(layer, group)) {
    const kernels::PanelShape panel{dim_blocks, format(of.role)};
    const bool other = !runs.empty() && runs.back().panel.format.type != panel.format.type;
    // Heads without whole panels are of one format, even where another one happened to begin with a
    // panel.
    if (other && (row % kPanelRows != 0 || layer.sizes.head_size % kPanelRows != 0)) return {};
    row += of.rows;
    const auto end = static_cast<uint32_t>(CeilDiv(row, kPanelRows));
    if (runs.empty() || other) {
      runs.push_back({end, panel});
    } else {
      runs.back().end = end;
    }
  }
  return runs;
}

// The runs of QKV, which repeat: of a group or, with a state beside attention, of all groups.
template <typename Format>
std::vector<MatrixPanels::Run> RunsOfQkv(const model::LayerSpec& layer, const LayerShape& shape,
                                         Format format) {
  std::vector<MatrixPanels::Run> all;
  for (size_t group = 0; group < (shape.state_groups == 0 ? 1 : layer.groups()); ++group) {
    const auto runs = RunsOfGroup(layer, group, shape.dim_blocks, format);
    if (runs.empty()) return {};
    for (const MatrixPanels::Run& run : runs)
      all.push_back({shape.of_group(group).begin + run.end, run.panel});
  }
  return all;
}

}  // namespace

const char* NameOf(PanelMatrix matrix) {
  constexpr std::array<const char*, kPanelMatrices> kNames = {
      "qkv",        "query up",    "key up",     "value up",  "o",       "ffn",   "down",
      "shared ffn", "shared down", "input gate", "input out", "lm_head", "inputs"};
  return kNames[IndexOf(matrix)];
}

LayerShape::LayerShape(const model::LayerSpec& layer)
    : dim_blocks(CeilDiv(layer.sizes.dim, kBlock)),
      q_blocks(CeilDiv(layer.output_size(), kBlock)),
      ffn_blocks(BlocksOf(layer, TensorRole::kDown)),
      shared_blocks(CeilDiv(layer.experts.shared_ffn, kBlock)),
      query_blocks(HasQueryUp(layer) ? BlocksOf(layer, TensorRole::kQ) : 0),
      key_blocks(BlocksOf(layer, TensorRole::kKeyUp)),
      value_blocks(BlocksOf(layer, TensorRole::kValueUp)),
      group_rows(RowsOfGroup(layer, 0)),
      group_panels(CeilDiv(group_rows, kPanelRows)),
      kv_heads(layer.sizes.kv_heads),
      state_rows(layer.groups() == kv_heads ? 0 : RowsOfGroup(layer, kv_heads)),
      state_panels(CeilDiv(state_rows, kPanelRows)),
      state_groups(layer.groups() - kv_heads),
      qkv_panels(kv_heads * group_panels + state_groups * state_panels),
      query_panels(HasQueryUp(layer) ? PanelsOf(layer, TensorRole::kQ) : 0),
      key_panels(layer.sizes.heads * CeilDiv(layer.latent.rank, kPanelRows)),
      value_panels(layer.sizes.heads * CeilDiv(layer.latent.value_size, kPanelRows)),
      o_panels(PanelsOf(layer, TensorRole::kO)),
      ffn_units(ffn_blocks * std::max<size_t>(1, layer.experts.count)),
      down_panels(layer.has_ffn() ? CeilDiv(layer.sizes.dim, kPanelRows) : 0),
      unit_panels(layer.gated() ? 4 : 2),
      experts(layer.experts.count),
      shared_units(shared_blocks),
      shared_down(shared_blocks == 0 ? 0 : down_panels),
      input_blocks(CeilDiv(layer.input_size, kBlock)),
      input_out(input_blocks == 0 ? 0 : CeilDiv(layer.sizes.dim, kPanelRows)) {}

PanelRange LayerShape::of_group(size_t group) const {
  const bool state = group >= kv_heads;
  const size_t panels = state ? state_panels : group_panels;
  const size_t begin =
      state ? kv_heads * group_panels + (group - kv_heads) * panels : group * panels;
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(begin + panels)};
}

size_t LayerShape::GroupOf(size_t panel) const {
  const size_t of_heads = kv_heads * group_panels;
  return panel < of_heads ? panel / group_panels : kv_heads + (panel - of_heads) / state_panels;
}

const kernels::PanelShape& MatrixPanels::of(uint32_t panel) const {
  const uint32_t in_period = panel % runs.back().end;
  return std::ranges::upper_bound(runs, in_period, {}, &Run::end)->panel;
}

uint64_t MatrixPanels::BytesBefore(uint32_t panel) const {
  const auto in_period = [&](uint32_t n) {
    uint64_t bytes = 0;
    uint32_t begin = 0;
    for (const Run& run : runs) {
      bytes += (std::clamp(n, begin, run.end) - begin) * run.panel.bytes();
      begin = run.end;
    }
    return bytes;
  };
  const uint32_t period = runs.back().end;
  return of_unit * (panel / period * in_period(period) + in_period(panel % period));
}

LayerPanels::LayerPanels(const model::ModelConfig& config, size_t layer) {
  const LayerShape shape(config.layer(layer));
  const auto narrow = [](size_t n) { return static_cast<uint32_t>(n); };
  const auto format = [&](TensorRole role) {
    return kernels::PanelFormatOf(config.TypeOf(layer, role));
  };
  const auto same = [&](TensorRole a, TensorRole b) { return format(a).type == format(b).type; };
  const model::LayerSpec& spec = config.layer(layer);
  std::vector<MatrixPanels::Run> qkv = RunsOfQkv(spec, shape, format);
  const bool one_o = !spec.Has(TensorRole::kStateO) || same(TensorRole::kO, TensorRole::kStateO);
  const bool gate_is_as_up = !spec.gated() || same(TensorRole::kGate, TensorRole::kUp);
  const bool shared_gate_is_as_up =
      !spec.gated() || same(TensorRole::kSharedGate, TensorRole::kSharedUp);
  mixed_ = qkv.empty() || !gate_is_as_up || !shared_gate_is_as_up || !one_o;
  if (qkv.empty()) qkv = {{narrow(shape.qkv_panels), {shape.dim_blocks, kernels::kQ8Panel}}};
  const auto plain = [&](size_t count, size_t blocks, TensorRole role) {
    return MatrixPanels{.count = narrow(count), .runs = {{1, {blocks, format(role)}}}};
  };
  matrices_ = {
      {{.count = narrow(shape.qkv_panels), .runs = std::move(qkv)},
       plain(shape.query_panels, shape.query_blocks, TensorRole::kQ),
       plain(shape.key_panels, shape.key_blocks, TensorRole::kKeyUp),
       plain(shape.value_panels, shape.value_blocks, TensorRole::kValueUp),
       {.count = narrow(shape.o_panels),
        .runs = {{1, {shape.q_blocks, one_o ? format(TensorRole::kO) : kernels::kQ8Panel}}}},
       {.count = narrow(shape.ffn_units),
        .of_unit = shape.unit_panels,
        .runs =
            {{1, {shape.dim_blocks, gate_is_as_up ? format(TensorRole::kUp) : kernels::kQ8Panel}}}},
       {.count = narrow(shape.down_panels),
        .of_unit = narrow(std::max<size_t>(1, shape.experts)),
        .runs = {{1, {shape.ffn_blocks, format(TensorRole::kDown)}}}},
       {.count = narrow(shape.shared_units),
        .of_unit = shape.unit_panels,
        .runs = {{1,
                  {shape.dim_blocks,
                   shared_gate_is_as_up ? format(TensorRole::kSharedUp) : kernels::kQ8Panel}}}},
       plain(shape.shared_down, shape.shared_blocks, TensorRole::kSharedDown),
       {.count = narrow(shape.input_blocks),
        .of_unit = 2,
        .runs = {{1, {shape.dim_blocks, format(TensorRole::kInputGate)}}}},
       plain(shape.input_out, shape.input_blocks, TensorRole::kInputOut)}};
}

uint64_t LayerPanels::bytes(PanelMatrix matrix, PanelRange range) const {
  const MatrixPanels& panels = matrices_.at(IndexOf(matrix));
  return panels.BytesBefore(range.end) - panels.BytesBefore(range.begin);
}

kernels::PanelShape LayerPanels::of(const PanelPart& part) const {
  const kernels::PanelShape& whole = of(part.matrix, part.panel);
  const auto [begin, end] = part.chunks;
  return {std::min(end * kernels::kSumBlocks, whole.blocks) - begin * kernels::kSumBlocks,
          whole.format};
}

uint64_t LayerPanels::bytes(const PanelPart& part) const { return part.panels * of(part).bytes(); }

std::vector<LayerPanels> PanelsOfLayers(const model::ModelConfig& config) {
  std::vector<LayerPanels> panels;
  for (size_t layer = 0; layer < config.layers; ++layer) panels.emplace_back(config, layer);
  return panels;
}

uint64_t LayerPanels::weight_bytes() const {
  uint64_t sum = 0;
  for (const PanelMatrix matrix : kLayerMatrices) sum += bytes(matrix, all(matrix));
  return sum;
}

namespace {

// Layers whose panels are equal: those of one kind may have several mixtures of types.
struct EqualLayers {
  size_t kind;
  LayerPanels panels;
  size_t count;
};
std::vector<EqualLayers> LayersByPanels(const model::ModelConfig& config) {
  std::vector<EqualLayers> all;
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const size_t kind = config.KindOf(layer);
    const LayerPanels panels(config, layer);
    const auto known = std::ranges::find_if(
        all, [&](const EqualLayers& of) { return of.kind == kind && of.panels == panels; });
    known != all.end() ? void(++known->count) : all.push_back({kind, panels, 1});
  }
  return all;
}

uint64_t BytesOf(const EqualLayers& layers, PanelMatrix matrix) {
  return layers.count * layers.panels.bytes(matrix, layers.panels.all(matrix));
}

}  // namespace

kernels::PanelShape HeadPanel(const model::ModelConfig& config) {
  return {CeilDiv(config.dim, kBlock), kernels::PanelFormatOf(config.types.head)};
}

kernels::PanelShape InputsPanel(const model::ModelConfig& config) {
  return {CeilDiv(config.dim, kBlock), kernels::PanelFormatOf(config.types.input_matrix)};
}

namespace {

model::TensorType LookedUpType(model::TensorType type) {
  using model::TensorType;
  const bool floats =
      type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16;
  return floats ? TensorType::kQ8_0 : type;
}

}  // namespace

model::TensorType EmbeddingType(const model::ModelConfig& config) {
  return LookedUpType(config.types.embedding);
}
model::TensorType InputEmbeddingType(const model::ModelConfig& config) {
  return LookedUpType(config.types.input_embedding);
}

uint64_t EmbeddingBytes(const model::ModelConfig& config) {
  return config.vocab * model::RowBytes(EmbeddingType(config), RoundUp(config.dim, kBlock));
}

uint64_t InputEmbeddingBytes(const model::ModelConfig& config) {
  return config.vocab *
         model::RowBytes(InputEmbeddingType(config), RoundUp(config.all_inputs(), kBlock));
}

uint64_t MatrixBytes(const model::ModelConfig& config, PanelMatrix matrix) {
  if (matrix == PanelMatrix::kInputs)
    return config.ends ? CeilDiv(config.all_inputs(), kPanelRows) * InputsPanel(config).bytes() : 0;
  if (matrix == PanelMatrix::kLmHead)
    return config.ends ? CeilDiv(config.vocab, kPanelRows) * HeadPanel(config).bytes() : 0;
  uint64_t bytes = 0;
  for (const EqualLayers& layers : LayersByPanels(config)) bytes += BytesOf(layers, matrix);
  return bytes;
}

uint64_t LayerBytes(const model::ModelConfig& config, size_t first, size_t count) {
  uint64_t bytes = 0;
  for (const EqualLayers& layers : LayersByPanels(model::LayersOf(config, first, count)))
    bytes += layers.count * layers.panels.weight_bytes();
  return bytes;
}

size_t RouterRows(const model::LayerSpec& layer) {
  return layer.experts.count + layer.Has(model::TensorRole::kSharedRouter);
}

uint64_t RouterBytes(const model::ModelConfig& config, size_t first, size_t count) {
  uint64_t rows = 0;
  for (size_t layer = first; layer < first + count; ++layer)
    rows += RouterRows(config.layer(layer));
  return rows * config.dim * sizeof(float);
}

double ActiveExperts(const model::ExpertSpec& experts, size_t rows) {
  const auto n = static_cast<double>(experts.count);
  return n *
         (1.0 - std::pow(1.0 - static_cast<double>(experts.used) / n, static_cast<double>(rows)));
}

namespace {

double FullestOfKind(const model::ExpertSpec& experts, const ShardPlan& plan, size_t kind,
                     size_t rows) {
  std::vector<std::vector<uint32_t>> units;  // [thread][expert]
  for (const ThreadShard& thread : plan.threads) {
    std::vector<uint32_t>& of = units.emplace_back(experts.count);
    const PanelRange& own = thread.of(kind, PanelMatrix::kFfn);
    for (uint32_t unit = own.begin; unit < own.end; ++unit) ++of[unit % experts.count];
  }
  std::minstd_rand random(1);
  std::vector<uint32_t> order(experts.count);
  std::iota(order.begin(), order.end(), 0u);
  double fullest = 0, all = 0;
  for (size_t step = 0; step < 200; ++step) {
    std::vector<bool> active(experts.count);
    for (size_t m = 0; m < rows; ++m) {
      for (size_t i = 0; i < experts.used; ++i) {
        std::swap(order[i], order[i + random() % (experts.count - i)]);
        active[order[i]] = true;
      }
    }
    uint64_t most = 0;
    for (const std::vector<uint32_t>& of : units) {
      uint64_t chosen = 0;
      for (size_t e = 0; e < experts.count; ++e) chosen += active[e] ? of[e] : 0;
      most = std::max(most, chosen);
      all += static_cast<double>(chosen);
    }
    fullest += static_cast<double>(most);
  }
  return fullest * static_cast<double>(plan.threads.size()) / all;
}

}  // namespace

double FullestOfExperts(const model::ModelConfig& config, const ShardPlan& plan, size_t rows) {
  double most = 1;
  for (size_t kind = 0; kind < config.kinds.size(); ++kind) {
    const model::ExpertSpec& experts = config.kinds[kind].experts;
    if (experts.count != 0) most = std::max(most, FullestOfKind(experts, plan, kind, rows));
  }
  return most;
}

namespace {

double ReadBytesOf(const model::ModelConfig& config, const EqualLayers& layers, PanelMatrix matrix,
                   size_t rows) {
  const auto bytes = static_cast<double>(BytesOf(layers, matrix));
  const model::ExpertSpec& experts = config.kinds[layers.kind].experts;
  const bool of_experts = matrix == PanelMatrix::kFfn || matrix == PanelMatrix::kDown;
  if (!of_experts || experts.count == 0) return bytes;
  return bytes * ActiveExperts(experts, rows) / static_cast<double>(experts.count);
}

}  // namespace

double ReadBytes(const model::ModelConfig& config, PanelMatrix matrix, size_t rows) {
  if (matrix == PanelMatrix::kLmHead || matrix == PanelMatrix::kInputs)
    return static_cast<double>(MatrixBytes(config, matrix));
  double bytes = 0;
  for (const EqualLayers& layers : LayersByPanels(config))
    bytes += ReadBytesOf(config, layers, matrix, rows);
  return bytes;
}

double LayerReadBytes(const model::ModelConfig& config, size_t first, size_t count, size_t rows) {
  auto bytes = static_cast<double>(RouterBytes(config, first, count));
  for (const EqualLayers& layers : LayersByPanels(model::LayersOf(config, first, count))) {
    for (const PanelMatrix matrix : kLayerMatrices)
      bytes += ReadBytesOf(config, layers, matrix, rows);
  }
  return bytes;
}

namespace {

// Where a thread's share of a matrix begins, if its panels are cut along their inputs: at a chunk
// of a panel. The share ends where the next thread's begins.
struct Cut {
  uint32_t panel, chunk;
};
Cut CutAt(size_t panels, size_t blocks, size_t thread, size_t threads) {
  const size_t at = panels * blocks * thread / threads;
  const size_t panel = at / blocks;
  const size_t chunk = (at % blocks + kernels::kSumBlocks / 2) / kernels::kSumBlocks;
  const bool at_the_end = chunk * kernels::kSumBlocks >= blocks;
  return {static_cast<uint32_t>(panel + at_the_end), static_cast<uint32_t>(at_the_end ? 0 : chunk)};
}

// The blocks of the fullest thread: with whole panels, and with cut ones.
size_t MostBlocks(size_t panels, size_t blocks, size_t threads) {
  return CeilDiv(panels, threads) * blocks;
}
size_t MostBlocksOfCut(size_t panels, size_t blocks, size_t threads) {
  size_t most = 0, begin = 0;
  for (size_t t = 1; t <= threads; ++t) {
    const Cut cut = CutAt(panels, blocks, t, threads);
    const size_t end = cut.panel * blocks + cut.chunk * kernels::kSumBlocks;
    most = std::max(most, end - begin);
    begin = end;
  }
  return most;
}

// Gives all threads their share of a matrix whose panels (kFfn: units) are cut.
void DivideCut(size_t kind, PanelMatrix matrix, size_t panels, size_t blocks, uint32_t unit_panels,
               std::vector<ThreadShard>& threads) {
  const uint32_t of_unit = matrix == PanelMatrix::kFfn ? unit_panels : 1;
  const auto chunks = static_cast<uint32_t>(CeilDiv(blocks, kernels::kSumBlocks));
  for (size_t t = 0; t < threads.size(); ++t) {
    const Cut begin = CutAt(panels, blocks, t, threads.size());
    const Cut end = CutAt(panels, blocks, t + 1, threads.size());
    std::vector<PanelPart>& parts = threads[t].parts[kind];
    const bool ends_within = end.panel == begin.panel;
    if (begin.chunk > 0) {
      for (uint32_t c = begin.chunk; c < (ends_within ? end.chunk : chunks); ++c)
        parts.push_back({matrix, begin.panel, {c, c + 1}, of_unit});
    }
    if (end.chunk > 0 && !(ends_within && begin.chunk > 0))
      parts.push_back({matrix, end.panel, {0, end.chunk}, of_unit});
    const uint32_t first = begin.panel + (begin.chunk > 0);
    threads[t].whole[MatrixId(kind, matrix)] = {first, std::max(first, end.panel)};
  }
}

}  // namespace

ShardPlan MakeShardPlan(const model::ModelConfig& config, size_t threads,
                        uint64_t split_gain_bytes) {
  ShardPlan plan;
  plan.threads.resize(threads);
  plan.lm_head_panels = config.ends ? CeilDiv(config.vocab, kPanelRows) : 0;
  std::vector<size_t> panels_of = {
      plan.lm_head_panels, config.ends ? CeilDiv(config.all_inputs(), kPanelRows) : 0};  // MatrixId
  std::vector<LayerShape> shapes;
  for (const model::LayerSpec& kind : config.kinds) {
    const LayerShape& shape = shapes.emplace_back(kind);
    for (const size_t panels :
         {shape.qkv_panels, shape.query_panels, shape.key_panels, shape.value_panels,
          shape.o_panels, shape.ffn_units, shape.down_panels, shape.shared_units, shape.shared_down,
          shape.input_blocks, shape.input_out})
      panels_of.push_back(panels);
  }
  for (size_t t = 0; t < threads; ++t) {
    plan.threads[t].parts.resize(shapes.size());
    for (const size_t panels : panels_of) {
      plan.threads[t].whole.push_back(threadpool::ShareOf(
          static_cast<uint32_t>(panels), static_cast<uint32_t>(t), static_cast<uint32_t>(threads)));
    }
  }
  const std::vector<EqualLayers> all = LayersByPanels(config);
  const auto cut_if_better = [&](size_t kind, PanelMatrix matrix, size_t blocks) {
    uint64_t bytes = 0, layers = 0;
    for (const EqualLayers& of : all) {
      if (of.kind != kind) continue;
      bytes += BytesOf(of, matrix);
      layers += of.count;
    }
    const size_t panels = panels_of[MatrixId(kind, matrix)];
    if (layers == 0 || panels == 0) return;
    const size_t most = MostBlocks(panels, blocks, threads);
    const size_t most_of_cut = MostBlocksOfCut(panels, blocks, threads);
    // Formats may differ between layers: the mean.
    const uint64_t gain = (most - std::min(most, most_of_cut)) * bytes / (layers * panels * blocks);
    if (most_of_cut < most && gain >= split_gain_bytes)
      DivideCut(kind, matrix, panels, blocks, shapes[kind].unit_panels, plan.threads);
  };
  for (size_t kind = 0; kind < shapes.size(); ++kind) {
    cut_if_better(kind, PanelMatrix::kO, shapes[kind].q_blocks);
    if (shapes[kind].experts != 0) continue;
    cut_if_better(kind, PanelMatrix::kFfn, shapes[kind].dim_blocks);
    cut_if_better(kind, PanelMatrix::kDown, shapes[kind].ffn_blocks);
  }
  return plan;
}

namespace {

// A thread's part of a matrix, of all these layers.
uint64_t BytesOf(const ThreadShard& shard, const EqualLayers& layers, PanelMatrix matrix) {
  uint64_t bytes = layers.panels.bytes(matrix, shard.of(layers.kind, matrix));
  for (const PanelPart& part : shard.parts[layers.kind])
    if (part.matrix == matrix) bytes += layers.panels.bytes(part);
  return layers.count * bytes;
}

}  // namespace

uint64_t ShardPlan::ThreadBytes(const model::ModelConfig& config, size_t thread) const {
  const ThreadShard& shard = threads[thread];
  uint64_t bytes = shard.lm_head().count() * HeadPanel(config).bytes() +
                   shard.inputs().count() * InputsPanel(config).bytes();
  for (const EqualLayers& layers : LayersByPanels(config)) {
    for (const PanelMatrix matrix : kLayerMatrices) bytes += BytesOf(shard, layers, matrix);
  }
  return bytes;
}

uint64_t ShardPlan::MostThreadBytes(const model::ModelConfig& config) const {
  uint64_t most = 0;
  for (size_t t = 0; t < threads.size(); ++t) most = std::max(most, ThreadBytes(config, t));
  return most;
}

uint64_t ShardPlan::CriticalBytes(const model::ModelConfig& config) const {
  uint64_t head = 0, inputs = 0;
  for (const ThreadShard& shard : threads) {
    head = std::max<uint64_t>(head, shard.lm_head().count());
    inputs = std::max<uint64_t>(inputs, shard.inputs().count());
  }
  uint64_t bytes = head * HeadPanel(config).bytes() + inputs * InputsPanel(config).bytes();
  for (const EqualLayers& layers : LayersByPanels(config)) {
    for (const PanelMatrix matrix : kLayerMatrices) {
      uint64_t most = 0;
      for (const ThreadShard& shard : threads)
        most = std::max(most, BytesOf(shard, layers, matrix));
      bytes += most;
    }
  }
  return bytes;
}

double ShardPlan::Balance(const model::ModelConfig& config) const {
  const uint64_t bytes = LayerBytes(config, 0, config.layers) +
                         lm_head_panels * HeadPanel(config).bytes() +
                         MatrixBytes(config, PanelMatrix::kInputs);
  return static_cast<double>(bytes) / static_cast<double>(threads.size() * CriticalBytes(config));
}

BetterThreads FindBetterThreads(const model::ModelConfig& config, size_t threads) {
  BetterThreads better{.fewest_as_fast = threads, .next_balanced = 0};
  const uint64_t critical = MakeShardPlan(config, threads).CriticalBytes(config);
  while (better.fewest_as_fast > 1 &&
         MakeShardPlan(config, better.fewest_as_fast - 1).CriticalBytes(config) <= critical)
    --better.fewest_as_fast;
  for (size_t n = threads + 1; n <= 4 * threads && better.next_balanced == 0; ++n) {
    if (MakeShardPlan(config, n).Balance(config) >= kGoodBalance) better.next_balanced = n;
  }
  return better;
}

std::string BalanceText(const model::ModelConfig& config, size_t threads) {
  const double balance = MakeShardPlan(config, threads).Balance(config);
  const BetterThreads better = FindBetterThreads(config, threads);
  std::string out =
      fmt::format("{:.1f} %: the fullest thread of each matrix is waited for", 100 * balance);
  if (better.fewest_as_fast < threads)
    out += fmt::format("; {} threads are as fast", better.fewest_as_fast);
  if (balance < kGoodBalance && better.next_balanced != 0)
    out += fmt::format("; {} are the next good number", better.next_balanced);
  return out;
}

}  // namespace larder::weight_node
