#include "weight_node/shards.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "base/check.h"
#include "model/config/key_bias.h"
#include "threadpool/share.h"
#include "weight_node/panel_map.h"

namespace larder::weight_node {
namespace {

using kernels::kPanelRows;
using kernels::PanelShape;
using model::TensorRole;

// Where a packed row comes from; null: a row of zeros.
struct RowSource {
  const model::TensorInfo* tensor = nullptr;
  size_t row = 0;
  const model::TensorInfo* more = nullptr;  // its row of that number follows, if there is one
};

// A matrix, or a part of one: rows [first, first + rows) of those that `spec` says of tensors; of
// the only tensor where that is null.
struct RowsOfTensor {
  std::vector<const model::TensorInfo*> tensors;
  size_t first = 0, rows = 0;
  const model::TensorSpec* spec = nullptr;
  RowSource Row(size_t row) const {
    if (spec == nullptr) return {tensors[0], first + row};
    return {tensors[spec->TensorOf(first + row)], spec->RowInFile(first + row)};
  }
};

// Reads rows in runs and packs them. One per thread; it keeps its buffer between calls.
class Packer {
 public:
  Packer(const model::GgufFile& file, size_t thread, PackedByteCounter& progress)
      : file_(file), thread_(thread), progress_(progress) {}

  // rows.size() is a multiple of 16; all tensors have panel.blocks blocks per row. Returns the end
  // of the output.
  uint8_t* Pack(std::span<const RowSource> rows, const PanelShape& panel, uint8_t* out) {
    return Pack(rows, panel, {0, panel.blocks}, out);
  }
  // Only these blocks of the rows.
  uint8_t* Pack(std::span<const RowSource> rows, const PanelShape& panel, Range<size_t> blocks,
                uint8_t* out) {
    for (size_t begin = 0; begin < rows.size(); begin += kBatchRows) {
      out = PackBatch(rows.subspan(begin, std::min(kBatchRows, rows.size() - begin)), panel, blocks,
                      out);
    }
    return out;
  }

 private:
  // Enough for whole heads (their rows may be in another order than in the file, but together they
  // are one run), and small enough for L2.
  static constexpr size_t kBatchRows = 256;

  uint8_t* PackBatch(std::span<const RowSource> rows, const PanelShape& panel, Range<size_t> blocks,
                     uint8_t* out) {
    const size_t row_bytes = panel.row_bytes();
    const PanelShape before{blocks.begin, panel.format}, packed{blocks.count(), panel.format};
    buffer_.resize(rows.size() * row_bytes);
    order_.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].tensor) order_.push_back(i);
    }
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return std::pair(rows[a].tensor, rows[a].row) < std::pair(rows[b].tensor, rows[b].row);
    });
    std::vector<const void*> at(rows.size(), nullptr);
    for (size_t i = 0; i < order_.size();) {
      const RowSource first = rows[order_[i]];
      size_t n = 1;
      while (first.more == nullptr && i + n < order_.size() &&
             rows[order_[i + n]].tensor == first.tensor && rows[order_[i + n]].row == first.row + n)
        ++n;
      file_.ReadRowsAs(panel.format.type, *first.tensor, first.row, n, &buffer_[i * row_bytes]);
      if (first.more != nullptr) {
        const size_t bytes = model::RowBytes(panel.format.type, first.tensor->cols);
        file_.ReadRowsAs(panel.format.type, *first.more, first.row, 1,
                         &buffer_[i * row_bytes + bytes]);
      }
      for (size_t k = 0; k < n; ++k)
        at[order_[i + k]] = &buffer_[(i + k) * row_bytes + before.row_bytes()];
      i += n;
    }
    for (size_t r = 0; r < rows.size(); r += kPanelRows) {
      panel.format.pack(&at[r], packed.blocks, out);
      out += packed.bytes();
    }
    progress_.Add(thread_, rows.size() / kPanelRows * packed.bytes());
    return out;
  }

  const model::GgufFile& file_;
  const size_t thread_;
  PackedByteCounter& progress_;
  std::vector<uint8_t> buffer_;  // rows in the panels' type
  std::vector<size_t> order_;
};

std::vector<RowSource> PlainRows(const RowsOfTensor& matrix, PanelRange panels) {
  std::vector<RowSource> rows(panels.count() * kPanelRows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t row = panels.begin * kPanelRows + i;
    if (row < matrix.rows) rows[i] = matrix.Row(row);
  }
  return rows;
}

// Of a matrix with `of_head` rows for each head, which is padded to whole panels.
std::vector<RowSource> HeadRows(const RowsOfTensor& matrix, size_t of_head, PanelRange panels) {
  const size_t padded = RoundUp(of_head, kPanelRows);
  std::vector<RowSource> rows(panels.count() * kPanelRows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t row = panels.begin * kPanelRows + i;
    if (row % padded < of_head) rows[i] = matrix.Row(row / padded * of_head + row % padded);
  }
  return rows;
}

// The rows of units of gate and up; of up alone if gate has no rows.
std::vector<RowSource> FfnRows(const RowsOfTensor& gate, const RowsOfTensor& up, PanelRange units) {
  if (gate.rows == 0) return PlainRows(up, {2 * units.begin, 2 * units.end});
  std::vector<RowSource> rows;
  for (uint32_t unit = units.begin; unit < units.end; ++unit) {
    for (const RowsOfTensor* matrix : {&gate, &up}) {
      const std::vector<RowSource> pair = PlainRows(*matrix, {2 * unit, 2 * unit + 2});
      rows.insert(rows.end(), pair.begin(), pair.end());
    }
  }
  return rows;
}

// A matrix of one of the experts, whose matrices are a tensor together.
RowsOfTensor OfExpert(const RowsOfTensor& all, size_t expert, size_t experts) {
  const size_t rows = all.rows / experts;
  return {all.tensors, all.first + expert * rows, rows, all.spec};
}

// The rows of units of gate and up of experts (LayerShape).
std::vector<RowSource> ExpertFfnRows(const RowsOfTensor& gate, const RowsOfTensor& up,
                                     size_t experts, PanelRange units) {
  std::vector<RowSource> rows;
  const auto n = static_cast<uint32_t>(experts);
  for (uint32_t unit = units.begin; unit < units.end; ++unit) {
    const std::vector<RowSource> of_unit =
        FfnRows(OfExpert(gate, unit % n, experts), OfExpert(up, unit % n, experts),
                {unit / n, unit / n + 1});
    rows.insert(rows.end(), of_unit.begin(), of_unit.end());
  }
  return rows;
}

// A row of one of the matrices of QKV.
struct QkvSource {
  TensorRole role = TensorRole::kQ;
  size_t row = 0;
};

void AppendRows(const model::LayerSpec& layer, std::span<const model::RowsOfRole> heads,
                std::vector<std::optional<QkvSource>>& rows) {
  for (const model::RowsOfRole& of : heads) {
    for (size_t r = 0; r < of.rows; ++r) {
      rows.emplace_back(
          QkvSource{of.role, of.first + (of.rotates ? model::HeadRow(layer.rotary, r) : r)});
    }
  }
}

// All rows of a layer in QKV order (see LayerShape); nullopt: a row of zeros.
std::vector<std::optional<QkvSource>> QkvRows(const model::LayerSpec& layer) {
  const LayerShape shape(layer);
  std::vector<std::optional<QkvSource>> rows;
  for (size_t group = 0; group < layer.groups(); ++group) {
    AppendRows(layer, model::RowsOfHead(layer, group), rows);
    rows.resize(shape.of_group(group).end * kPanelRows);
  }
  return rows;
}

// The rows of kQ of latent attention with a query_rank.
std::vector<RowSource> QueryUpRows(const model::LayerSpec& layer, const RowsOfTensor& matrix,
                                   PanelRange panels) {
  std::vector<std::optional<QkvSource>> all;
  AppendRows(layer, model::QueryRows(layer), all);
  std::vector<RowSource> rows(panels.count() * kPanelRows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t row = panels.begin * kPanelRows + i;
    if (row < all.size()) rows[i] = matrix.Row(all[row]->row);
  }
  return rows;
}

float* AllocateFloats(topology::Arena& arena, size_t n) {
  return reinterpret_cast<float*>(arena.Allocate(n * sizeof(float)));
}

// Padded to whole panels with zeros.
const float* Place(const std::vector<float>& values, topology::Arena& arena) {
  float* out = AllocateFloats(arena, RoundUp(values.size(), kPanelRows));
  std::ranges::fill(std::ranges::copy(values, out).out, out + RoundUp(values.size(), kPanelRows),
                    0.0f);
  return out;
}
size_t PlacedBytes(size_t values) {
  return RoundUp(RoundUp(values, kPanelRows) * sizeof(float), kCacheLineBytes);
}

// The tensors of a layer that are vectors in `vectors` of LayerShard.
bool IsKept(const model::LayerSpec& layer, const model::TensorSpec& tensor) {
  switch (tensor.role) {
    case TensorRole::kQNorm:
    case TensorRole::kKNorm:
      return layer.qk_norm == model::QkNorm::kRow;
    case TensorRole::kQBias:
    case TensorRole::kKBias:
    case TensorRole::kVBias:
      return false;  // in qkv_bias
    case TensorRole::kGateBias:
    case TensorRole::kUpBias:
      return false;  // in gate_up_bias
    case TensorRole::kDownBias:
      return layer.experts.count == 0;  // in expert_down_bias
    case TensorRole::kHeadNorm:
      return false;  // attention_node's
    case TensorRole::kGroupNorm:
    case TensorRole::kRouterBias:
    case TensorRole::kExpertScale:
      return true;
    default:
      return tensor.kind == model::TensorKind::kNorm || tensor.kind == model::TensorKind::kBias;
  }
}

// In the order of units' rows.
std::vector<float> GateUpBiases(const model::GgufFile& file, const model::ModelConfig& config,
                                size_t layer) {
  const LayerShape shape(config.layer(layer));
  const size_t unit_rows = shape.unit_panels * kPanelRows;
  std::vector<float> biases(shape.ffn_units * unit_rows);
  size_t first = 0;  // of the unit's rows
  for (const TensorRole role : {TensorRole::kGateBias, TensorRole::kUpBias}) {
    if (!config.layer(layer).Has(role)) continue;
    const std::vector<float> of_file = model::ReadVector(file, config, layer, role);
    for (size_t i = 0; i < of_file.size(); ++i)
      biases[i / kernels::kBlock * unit_rows + first + i % kernels::kBlock] = of_file[i];
    first += kernels::kBlock;
  }
  return biases;
}

// Of experts, those of `units` (LayerShape), in the order of their rows.
std::vector<float> ExpertGateUpBiases(const model::GgufFile& file, const model::ModelConfig& config,
                                      size_t layer, PanelRange units) {
  const model::LayerSpec& spec = config.layer(layer);
  const size_t ffn = spec.sizes.ffn, experts = spec.experts.count;
  const size_t unit_rows = LayerShape(spec).unit_panels * kPanelRows;
  std::vector<float> biases(units.count() * unit_rows);
  size_t first = 0;  // of the unit's rows
  for (const TensorRole role : {TensorRole::kGateBias, TensorRole::kUpBias}) {
    if (!spec.Has(role)) continue;
    const std::vector<float> of_file = model::ReadVector(file, config, layer, role);
    for (uint32_t unit = units.begin; unit < units.end; ++unit) {
      const size_t expert = unit % experts, row = unit / experts * kernels::kBlock;
      std::copy_n(&of_file[expert * ffn + row], std::min(kernels::kBlock, ffn - row),
                  &biases[(unit - units.begin) * unit_rows + first]);
    }
    first += kernels::kBlock;
  }
  return biases;
}

// [experts][16 per panel]
std::vector<float> ExpertDownBiases(const model::GgufFile& file, const model::ModelConfig& config,
                                    size_t layer, PanelRange panels) {
  const std::vector<float> of_file = model::ReadVector(file, config, layer, TensorRole::kDownBias);
  const size_t experts = config.layer(layer).experts.count;
  const size_t stride = panels.count() * kPanelRows, begin = panels.begin * kPanelRows;
  const size_t end = std::min(config.dim, begin + stride);
  std::vector<float> biases(experts * stride);
  for (size_t e = 0; e < experts && begin < end; ++e)
    std::copy_n(&of_file[e * config.dim + begin], end - begin, &biases[e * stride]);
  return biases;
}

}  // namespace

Range<uint32_t> RouterShare(const model::LayerSpec& layer, size_t thread, size_t threads) {
  return threadpool::ShareOf(static_cast<uint32_t>(RouterRows(layer)),
                             static_cast<uint32_t>(thread), static_cast<uint32_t>(threads));
}

Shards::Shards(const model::ModelConfig& config, const ShardPlan& plan, size_t thread,
               NumaNodeId node)
    : config_(config),
      plan_(plan),
      thread_(thread),
      layer_panels_(PanelsOfLayers(config)),
      weight_bytes_(plan.ThreadBytes(config, thread)) {
  // The output norm's, lm_head's, and that of layer inputs.
  size_t vectors = 2 * PlacedBytes(config.dim) + PlacedBytes(config.input_size);
  for (size_t layer = 0; layer < config.layers; ++layer) {
    const model::LayerSpec& spec = config.layer(layer);
    for (const model::TensorSpec& tensor : spec.tensors)
      if (IsKept(spec, tensor)) vectors += PlacedBytes(tensor.rows * tensor.cols);
    const size_t unit_rows = LayerShape(spec).unit_panels * kPanelRows;
    const auto count = [&](PanelMatrix matrix) {
      return plan.threads[thread].of(config.KindOf(layer), matrix).count();
    };
    if (spec.experts.count != 0) {
      const size_t rows = RouterShare(spec, thread, plan.threads.size()).count();
      vectors += PlacedBytes(rows * config.dim) + PlacedBytes(rows);
      if (spec.Has(TensorRole::kDownBias)) {
        vectors += PlacedBytes(count(PanelMatrix::kFfn) * unit_rows) +
                   PlacedBytes(spec.experts.count * count(PanelMatrix::kDown) * kPanelRows);
      }
    } else if (spec.Has(TensorRole::kUpBias)) {
      vectors += PlacedBytes(LayerShape(spec).ffn_units * unit_rows);
    }
    if (spec.Has(TensorRole::kQBias)) {
      const PanelRange qkv = plan.threads[thread].of(config.KindOf(layer), PanelMatrix::kQkv);
      vectors += RoundUp(qkv.count() * kPanelRows * sizeof(float), kCacheLineBytes);
    }
  }
  arena_ = topology::Arena(weight_bytes_ + vectors, node);
  layers_.resize(config.layers);
}

const uint8_t* Shards::Panel(PanelMatrix matrix, size_t layer, uint32_t panel) const {
  const ThreadShard& shard = plan_.threads[thread_];
  if (matrix == PanelMatrix::kLmHead)
    return head_ + (panel - shard.lm_head().begin) * HeadPanel(config_).bytes();
  if (matrix == PanelMatrix::kInputs)
    return inputs_ + (panel - shard.inputs().begin) * InputsPanel(config_).bytes();
  const uint32_t first = shard.of(config_.KindOf(layer), matrix).begin;
  return layers_[layer].panels.at(IndexOf(matrix)) +
         layer_panels_[layer].bytes(matrix, {first, panel});
}

std::span<const std::byte> Shards::LayerWeights(size_t layer) const {
  const auto begin_of = [&](size_t i) {
    const uint8_t* begin =
        i < layers_.size() ? layers_[i].panels[IndexOf(kLayerMatrices[0])] : head_;
    return reinterpret_cast<const std::byte*>(begin);
  };
  return {begin_of(layer), begin_of(layer + 1)};
}

std::span<const std::byte> Shards::EndsWeights() const {
  return {reinterpret_cast<const std::byte*>(head_), weights().data() + weight_bytes_};
}

const uint8_t* Shards::ExpertDown(size_t layer, uint32_t panel) const {
  const PanelRange own = plan_.threads[thread_].of(config_.KindOf(layer), PanelMatrix::kDown);
  return layers_[layer].panels.at(IndexOf(PanelMatrix::kDown)) +
         (panel - own.begin) * layer_panels_[layer].of(PanelMatrix::kDown, 0).bytes();
}

size_t Shards::ExpertDownStride(size_t layer) const {
  const PanelRange own = plan_.threads[thread_].of(config_.KindOf(layer), PanelMatrix::kDown);
  return own.count() * layer_panels_[layer].of(PanelMatrix::kDown, 0).bytes();
}

const float* Shards::ExpertUnitBias(size_t layer, uint32_t unit) const {
  const float* const biases = layers_[layer].gate_up_bias;
  const PanelRange own = plan_.threads[thread_].of(config_.KindOf(layer), PanelMatrix::kFfn);
  const size_t unit_rows = LayerShape(config_.layer(layer)).unit_panels * kPanelRows;
  return biases == nullptr ? nullptr : biases + (unit - own.begin) * unit_rows;
}

const float* Shards::ExpertDownBias(size_t layer, uint32_t panel) const {
  const float* const biases = layers_[layer].expert_down_bias;
  const PanelRange own = plan_.threads[thread_].of(config_.KindOf(layer), PanelMatrix::kDown);
  return biases == nullptr ? nullptr : biases + (panel - own.begin) * kPanelRows;
}

size_t Shards::ExpertDownBiasStride(size_t layer) const {
  return plan_.threads[thread_].of(config_.KindOf(layer), PanelMatrix::kDown).count() * kPanelRows;
}

const float* Shards::QkvBias(size_t layer, uint32_t panel) const {
  const float* biases = layers_[layer].qkv_bias;
  if (biases == nullptr) return nullptr;
  const PanelRange own = plan_.threads[thread_].of(config_.KindOf(layer), PanelMatrix::kQkv);
  return biases + (panel - own.begin) * kPanelRows;
}

void Shards::Pack(const model::GgufFile& file, PackedByteCounter& progress) {
  const ThreadShard& shard = plan_.threads[thread_];
  Packer packer(file, thread_, progress);
  auto* out = reinterpret_cast<uint8_t*>(arena_.Allocate(weight_bytes_));
  const uint8_t* const begin = out;
  for (size_t layer = 0; layer < config_.layers; ++layer) {
    LayerShard& to = layers_[layer];
    const size_t kind = config_.KindOf(layer);
    const model::LayerSpec& spec = config_.kinds[kind];
    const LayerShape shape(spec);
    const LayerPanels& panels = layer_panels_[layer];
    const auto tensor = [&](TensorRole role) {  // empty: a matrix that the layer does not have
      if (!spec.Has(role)) return RowsOfTensor{};
      const model::TensorSpec& matrix = spec.tensor(role);
      RowsOfTensor rows{.rows = matrix.rows, .spec = &matrix};
      for (size_t i = 0; i < matrix.tensors(); ++i)
        rows.tensors.push_back(&file.Tensor(config_.TensorName(layer, matrix, i)));
      return rows;
    };
    const std::vector<std::optional<QkvSource>> qkv = QkvRows(spec);
    std::array<RowsOfTensor, model::kTensorRoles> matrices;  // by role
    for (const model::TensorSpec& matrix : spec.tensors) {
      if (matrix.kind == model::TensorKind::kMatrix)
        matrices.at(static_cast<size_t>(matrix.role)) = tensor(matrix.role);
    }
    to.panels[IndexOf(PanelMatrix::kQkv)] = out;
    std::vector<RowSource> rows;
    const PanelExtent own{thread_, shard.of(kind, PanelMatrix::kQkv)};
    for (const auto& [group, part] : QkvParts(shape, {&own, 1}, panels)) {
      rows.resize(part.panels.count() * kPanelRows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto& source = qkv[part.panels.begin * kPanelRows + i];
        rows[i] = {};
        if (!source) continue;
        rows[i] = matrices.at(static_cast<size_t>(source->role)).Row(source->row);
      }
      out = packer.Pack(rows, panels.of(PanelMatrix::kQkv, part.panels.begin), out);
    }
    const auto rows_of = [&](PanelMatrix matrix, PanelRange range) {
      switch (matrix) {
        case PanelMatrix::kFfn:
          if (shape.experts != 0)
            return ExpertFfnRows(tensor(TensorRole::kGate), tensor(TensorRole::kUp), shape.experts,
                                 range);
          return FfnRows(tensor(TensorRole::kGate), tensor(TensorRole::kUp), range);
        case PanelMatrix::kSharedFfn:
          return FfnRows(tensor(TensorRole::kSharedGate), tensor(TensorRole::kSharedUp), range);
        case PanelMatrix::kDown:
          return PlainRows(tensor(TensorRole::kDown), range);
        case PanelMatrix::kQueryUp:
          return QueryUpRows(spec, tensor(TensorRole::kQ), range);
        case PanelMatrix::kKeyUp:
          return HeadRows(tensor(TensorRole::kKeyUp), spec.latent.rank, range);
        case PanelMatrix::kValueUp:
          return HeadRows(tensor(TensorRole::kValueUp), spec.latent.value_size, range);
        case PanelMatrix::kSharedDown:
          return PlainRows(tensor(TensorRole::kSharedDown), range);
        case PanelMatrix::kInputGate:
          return FfnRows({}, tensor(TensorRole::kInputGate), range);
        case PanelMatrix::kInputOut:
          return PlainRows(tensor(TensorRole::kInputOut), range);
        default: {
          std::vector<RowSource> of_o = PlainRows(tensor(TensorRole::kO), range);
          for (RowSource& row : of_o) {
            if (row.tensor != nullptr && spec.Has(TensorRole::kStateO))
              row.more = tensor(TensorRole::kStateO).tensors[0];
          }
          return of_o;
        }
      }
    };
    for (const PanelMatrix matrix : std::span(kLayerMatrices).subspan(1)) {  // behind kQkv
      to.panels[IndexOf(matrix)] = out;
      if (panels.all(matrix).count() == 0) continue;
      const PanelShape& panel = panels.of(matrix, 0);
      if (matrix == PanelMatrix::kDown && shape.experts != 0) {
        for (size_t e = 0; e < shape.experts; ++e) {
          const RowsOfTensor down = OfExpert(tensor(TensorRole::kDown), e, shape.experts);
          out = packer.Pack(PlainRows(down, shard.of(kind, matrix)), panel, out);
        }
        continue;
      }
      out = packer.Pack(rows_of(matrix, shard.of(kind, matrix)), panel, out);
      for (const PanelPart& part : shard.parts[kind]) {
        if (part.matrix != matrix) continue;
        to.parts.push_back(out);
        const size_t first = part.chunks.begin * kernels::kSumBlocks;
        out = packer.Pack(rows_of(matrix, {part.panel, part.panel + 1}), panel,
                          {first, first + panels.of(part).blocks}, out);
      }
    }
  }
  head_ = out;
  if (config_.ends) {
    const char* head = config_.tied_embeddings ? model::kEmbeddingTensor : model::kHeadTensor;
    const model::TensorInfo& rows = file.Tensor(head);
    out = packer.Pack(PlainRows({{&rows}, 0, rows.rows}, shard.lm_head()), HeadPanel(config_), out);
  }
  inputs_ = out;
  if (config_.ends && config_.input_size != 0) {
    const model::TensorInfo& rows = file.Tensor(model::kInputMatrixTensor);
    out =
        packer.Pack(PlainRows({{&rows}, 0, rows.rows}, shard.inputs()), InputsPanel(config_), out);
  }
  LARDER_CHECK(static_cast<uint64_t>(out - begin) == weight_bytes_);

  for (size_t layer = 0; layer < config_.layers; ++layer) {
    LayerShard& to = layers_[layer];
    const size_t kind = config_.KindOf(layer);
    const model::LayerSpec& spec = config_.kinds[kind];
    for (const model::TensorSpec& vector : spec.tensors) {
      if (!IsKept(spec, vector)) continue;
      std::vector<float> values = model::ReadVector(file, config_, layer, vector.role);
      if (vector.role == TensorRole::kQNorm || vector.role == TensorRole::kKNorm)
        values = model::InPackedOrder(spec, values);
      for (float& value : values) {
        if (vector.role == TensorRole::kRouterScale)
          value = static_cast<float>(value / std::sqrt(static_cast<double>(config_.dim)));
      }
      to.vectors[static_cast<size_t>(vector.role)] = Place(values, arena_);
    }
    if (spec.experts.count != 0) {
      PlaceExpertVectors(file, layer, to);
    } else if (spec.Has(TensorRole::kUpBias)) {
      to.gate_up_bias = Place(GateUpBiases(file, config_, layer), arena_);
    }
    if (!spec.Has(TensorRole::kQBias)) continue;
    const std::vector<std::optional<QkvSource>> qkv = QkvRows(spec);
    const std::vector<float> of_q = model::ReadVector(file, config_, layer, TensorRole::kQBias);
    const std::vector<float> of_k = model::ReadKeyBias(file, config_, layer).in_keys;
    const std::vector<float> of_v =
        spec.Has(TensorRole::kVBias) ? model::ReadVector(file, config_, layer, TensorRole::kVBias)
                                     : std::vector<float>();
    const PanelRange own = shard.of(kind, PanelMatrix::kQkv);
    float* packed = AllocateFloats(arena_, own.count() * kPanelRows);
    for (size_t i = 0; i < own.count() * kPanelRows; ++i) {
      const auto& source = qkv[own.begin * kPanelRows + i];
      packed[i] = 0.0f;
      if (!source || source->role > TensorRole::kV) continue;
      const std::vector<float>& bias = source->role == TensorRole::kQ   ? of_q
                                       : source->role == TensorRole::kK ? of_k
                                                                        : of_v;
      packed[i] = bias[source->row];
    }
    to.qkv_bias = packed;
  }
  if (!config_.ends) return;
  const model::TensorInfo& norm = file.Tensor(model::OutputNormTensor(config_));
  std::vector<float> weights(norm.cols);
  file.ReadRowsF32(norm, 0, 1, weights.data());
  output_norm_ = head_norm_ = Place(weights, arena_);
  if (config_.input_size != 0) {
    std::vector<float> of_inputs(config_.input_size);
    file.ReadRowsF32(file.Tensor(model::kInputNormTensor), 0, 1, of_inputs.data());
    input_norm_ = Place(of_inputs, arena_);
  }
  if (config_.scales.logits == 1.0) return;
  for (float& weight : weights) weight = static_cast<float>(weight * config_.scales.logits);
  head_norm_ = Place(weights, arena_);
}

void Shards::PlaceExpertVectors(const model::GgufFile& file, size_t layer, LayerShard& to) {
  const model::LayerSpec& spec = config_.layer(layer);
  const auto [begin, end] = RouterShare(spec, thread_, plan_.threads.size());
  std::vector<float> rows((end - begin) * config_.dim);
  for (uint32_t row = begin; row < end; ++row) {
    const bool shared = row == spec.experts.count;
    const TensorRole role = shared ? TensorRole::kSharedRouter : TensorRole::kRouter;
    file.ReadRowsF32(file.Tensor(config_.TensorName(layer, role)), shared ? 0 : row, 1,
                     &rows[(row - begin) * config_.dim]);
  }
  to.router = Place(rows, arena_);
  if (spec.Has(TensorRole::kRouterLogitBias)) {
    std::vector<float> biases =
        model::ReadVector(file, config_, layer, TensorRole::kRouterLogitBias);
    biases.resize(RouterRows(spec));  // 0 for kSharedRouter
    to.router_bias = Place({biases.begin() + begin, biases.begin() + end}, arena_);
  }
  if (!spec.Has(TensorRole::kDownBias)) return;
  const ThreadShard& shard = plan_.threads[thread_];
  const size_t kind = config_.KindOf(layer);
  to.gate_up_bias =
      Place(ExpertGateUpBiases(file, config_, layer, shard.of(kind, PanelMatrix::kFfn)), arena_);
  to.expert_down_bias =
      Place(ExpertDownBiases(file, config_, layer, shard.of(kind, PanelMatrix::kDown)), arena_);
}

}  // namespace larder::weight_node
