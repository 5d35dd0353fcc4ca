#include <algorithm>
#include <limits>

#include "kernels/formats/act_block.h"
#include "kernels/formats/panel_format.h"
#include "model/gguf/quants.h"
#include "model/step/batch_rows.h"
#include "model/step/step_kind.h"
#include "threadpool/share.h"
#include "threadpool/timeline.h"
#include "weight_node/expert_steps.h"
#include "weight_node/likely_panels.h"
#include "weight_node/weight_steps.h"

namespace larder::weight_node {
namespace {

using kernels::ActBlock;
using model::BatchRows;
using model::StepKind;
using threadpool::EndLap;

inline ActBlock* ActRow(const ActRows& rows, size_t m) {
  return reinterpret_cast<ActBlock*>(rows.row(m));
}

// The row of the buffers that is the m-th of the rows, or of those whose logits are wanted.
inline uint32_t RowAt(const BatchRows& rows, bool logit_rows, uint32_t m) {
  return logit_rows ? rows.logit_row[m] : rows.first_row + m;
}

inline Range<uint32_t> RowsOf(uint32_t rows, const RowShare& share) {
  return threadpool::ShareOf(rows, share.thread, share.threads);
}

inline void ScaleRow(float* x, size_t n, const float* scale) {
  if (scale == nullptr) return;
  const float factor = *scale;
  for (size_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

// x becomes what the first plane rounds off.
void QuantizePlanes(const NormOperand& op, float* x, uint32_t row) {
  const ActBlock* const plane = ActRow(op.planes->plane[0], row);
  op.elementwise->quantize(x, ActRow(op.planes->plane[0], row), op.n);
  for (size_t begin = 0; begin < op.n; begin += kernels::kBlock) {
    const ActBlock& block = plane[begin / kernels::kBlock];
    const size_t count = std::min(kernels::kBlock, op.n - begin);
    for (size_t i = 0; i < count; ++i)
      x[begin + i] = x[begin + i] - block.d * static_cast<float>(block.q[i]);
  }
  op.elementwise->quantize(x, ActRow(op.planes->plane[1], row), op.n);
}

}  // namespace

void EmbedStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const EmbedOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const auto [begin, end] = RowsOf(rows.rows, op.share);
  for (uint32_t m = begin; m < end; ++m) {
    const auto token = static_cast<size_t>(rows.token[m]);
    float* x = op.x.row(m);
    if (op.table) {
      const size_t n = op.head_panel.blocks * model::kBlock;
      model::DequantizeBlocks(op.table_type, op.table + token * model::RowBytes(op.table_type, n),
                              {op.scratch, n});
    } else {
      const auto panel = static_cast<uint32_t>(token / kernels::kPanelRows);
      uint32_t owner = 0;
      while (panel >= op.head_first_panel[owner + 1]) ++owner;
      const uint8_t* at =
          op.lm_head_panels[owner] + (panel - op.head_first_panel[owner]) * op.head_panel.bytes();
      kernels::UnpackRow(op.head_panel, at, token % kernels::kPanelRows, op.scratch);
    }
    for (size_t i = 0; i < op.dim; ++i) x[i] = op.scratch[i] * op.scale;
  }
}

void InputsStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const InputsOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const size_t all = op.layers * op.size, n = RoundUp(all, kernels::kBlock);
  const auto [begin, end] = RowsOf(rows.rows, op.share);
  for (uint32_t m = begin; m < end; ++m) {
    const auto token = static_cast<size_t>(rows.token[m]);
    model::DequantizeBlocks(op.table_type, op.table + token * model::RowBytes(op.table_type, n),
                            {op.scratch, n});
    float* const x = op.x.row(m);
    for (size_t i = 0; i < all; i += op.size)
      op.elementwise->rms_norm(x + i, op.weight, x + i, op.size, op.epsilon);
    for (size_t i = 0; i < all; ++i) x[i] = (x[i] + op.scratch[i] * op.row_scale) * op.scale;
  }
}

void ReceiveStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const TransferOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  for (uint32_t m = 0; m < rows.rows; ++m)
    std::copy_n(rows.received + m * op.row_floats + op.at + op.first, op.count,
                op.x.row(m) + op.first);
}

void SendStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const TransferOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const uint32_t n = op.logit_rows ? rows.logit_rows : rows.rows;
  for (uint32_t m = 0; m < n; ++m) {
    const float* x = op.x.row(RowAt(rows, op.logit_rows, m));
    std::copy_n(x + op.first, op.count, rows.sending + m * op.row_floats + op.at + op.first);
  }
}

void NormStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const NormOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const bool logit_rows = op.planes != nullptr;
  if (logit_rows && !rows.lm_head) return;
  const auto [begin, end] = RowsOf(logit_rows ? rows.logit_rows : rows.rows, op.share);
  const uint32_t first = rows.first_row;
  const float* x[kernels::kNormRows];
  float* normed[kernels::kNormRows];
  for (size_t i = 0; i < kernels::kNormRows; ++i) normed[i] = op.scratch + i * op.n;
  for (uint32_t m = begin; m < end;) {
    const uint32_t count = std::min<uint32_t>(end - m, kernels::kNormRows);
    for (uint32_t i = 0; i < count; ++i) x[i] = op.x.row(RowAt(rows, logit_rows, m + i));
    op.norms(x, op.weight, normed, count, op.n, op.epsilon);
    EndLap(StepKind::kNorm);
    if (op.router != nullptr) {
      for (uint32_t i = 0; i < count; ++i) RouteRow(*op.router, normed[i], op.n, first + m + i);
      EndLap(StepKind::kRoute);
    }
    for (uint32_t i = 0; i < count; ++i) {
      if (op.planes != nullptr) {
        QuantizePlanes(op, normed[i], m + i);
      } else {
        op.elementwise->quantize(normed[i], ActRow(op.out, first + m + i), op.n);
      }
    }
    EndLap(StepKind::kQuantize);
    if (op.experts != nullptr) {
      op.norms(x, op.experts->weight, normed, count, op.n, op.epsilon);
      EndLap(StepKind::kNorm);
      for (uint32_t i = 0; i < count; ++i)
        op.elementwise->quantize(normed[i], ActRow(op.experts->out, first + m + i), op.n);
      EndLap(StepKind::kQuantize);
      op.norms(x, op.experts->router_weight, normed, count, op.n, op.epsilon);
      EndLap(StepKind::kNorm);
      for (uint32_t i = 0; i < count; ++i)
        RouteRow(*op.experts->router, normed[i], op.n, first + m + i);
      EndLap(StepKind::kRoute);
    }
    m += count;
  }
}

void AddNormsStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const AddNormsOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const auto [begin, end] = RowsOf(rows.rows, op.share);
  float* of[kernels::kNormRows];
  for (uint32_t m = begin; m < end;) {
    const uint32_t count = std::min<uint32_t>(end - m, kernels::kNormRows);
    const uint32_t first = rows.first_row + m;
    for (const bool is_a : {false, true}) {
      for (uint32_t i = 0; i < count; ++i) of[i] = (is_a ? op.a : op.b).row(first + i);
      op.norms(of, is_a ? op.a_weight : op.b_weight, of, count, op.n, op.epsilon);
    }
    for (uint32_t i = 0; i < count; ++i)
      op.elementwise->add(op.a.row(first + i), op.b.row(first + i), op.n);
    m += count;
  }
}

void AddNormStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const AddNormOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const auto [begin, end] = RowsOf(rows.rows, op.share);
  float* y[kernels::kNormRows];
  for (uint32_t m = begin; m < end;) {
    const uint32_t count = std::min<uint32_t>(end - m, kernels::kNormRows);
    for (uint32_t i = 0; i < count; ++i) y[i] = op.y.row(rows.first_row + m + i);
    op.norms(y, op.weight, y, count, op.n, op.epsilon);
    for (uint32_t i = 0; i < count; ++i) {
      op.elementwise->add(y[i], op.x.row(rows.first_row + m + i), op.n);
      ScaleRow(y[i], op.n, op.scale);
      std::copy_n(y[i], op.n, op.to.row(rows.first_row + m + i));
    }
    m += count;
  }
}

void AddNormInputStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const AddNormInputOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const float* y[kernels::kNormRows];
  float* sum[kernels::kNormRows];
  for (size_t i = 0; i < kernels::kNormRows; ++i) sum[i] = op.scratch + i * op.n;
  for (uint32_t m = 0; m < rows.rows;) {
    const uint32_t count = std::min<uint32_t>(rows.rows - m, kernels::kNormRows);
    const uint32_t first = rows.first_row + m;
    for (uint32_t i = 0; i < count; ++i) y[i] = op.y.row(first + i);
    op.norms(y, op.weight, sum, count, op.n, op.epsilon);
    for (uint32_t i = 0; i < count; ++i) {
      op.elementwise->add(sum[i], op.x.row(first + i), op.n);
      ScaleRow(sum[i], op.n, op.scale);
      std::copy_n(sum[i] + op.first, op.count, op.to.row(first + i) + op.first);
    }
    if (op.next_weight != nullptr)
      op.next_norms(sum, op.next_weight, sum, count, op.n, op.next_epsilon);
    EndLap(StepKind::kNorm);
    for (uint32_t i = 0; i < count; ++i)
      op.elementwise->quantize(sum[i], ActRow(op.out, first + i), op.n);
    EndLap(StepKind::kQuantize);
    m += count;
  }
}

namespace {

// Of the elements [first, first + count) of each group.
void NormAcrossGroups(const RowNormOperand& op, uint32_t row, size_t first, size_t count,
                      const float* weight) {
  const float* const x = op.x.row(row) + first;
  for (size_t g = 0; g < op.groups; ++g)
    std::copy_n(x + g * op.group_stride, count, op.scratch + g * count);
  op.elementwise->rms_norm(op.scratch, weight, op.scratch, op.groups * count, op.epsilon);
  float* const to = op.to.row(row) + first;
  for (size_t i = 0; i < op.n_written; ++i)
    std::copy_n(op.scratch + op.written[i] * count, count, to + op.written[i] * op.group_stride);
}

}  // namespace

void RowNormStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const RowNormOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  if (op.n_written == 0) return;
  const auto [begin, end] = RowsOf(rows.rows, op.share);
  for (uint32_t m = rows.first_row + begin; m < rows.first_row + end; ++m) {
    NormAcrossGroups(op, m, 0, op.queries, op.q_weight);
    NormAcrossGroups(op, m, op.queries, op.keys, op.k_weight);
    for (size_t i = 0; i < op.n_written; ++i) {
      const size_t value = op.written[i] * op.group_stride + op.queries + op.keys;
      std::copy_n(op.x.row(m) + value, op.keys, op.to.row(m) + value);
    }
  }
}

void HeadProductStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const HeadProductOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const uint32_t n_rows = op.logit_rows ? rows.logit_rows : rows.rows;
  const uint32_t first = rows.first_row;
  const size_t panel_bytes = op.gemm->shape().panel.bytes(), end = op.first_panel + op.n_panels;
  const size_t of_head = CeilDiv(op.outputs, kernels::kPanelRows);
  const bool whole = op.outputs % kernels::kPanelRows == 0;
  for (size_t panel = op.first_panel, next = panel; panel < end; panel = next) {
    const size_t head = panel / of_head, in_head = panel % of_head;
    next = std::min(end, panel - in_head + of_head);
    const Range<size_t> outputs = {
        in_head * kernels::kPanelRows,
        std::min(op.outputs, (in_head + next - panel) * kernels::kPanelRows)};
    for (uint32_t begin = 0; begin < n_rows; begin += kHeadRows) {
      const uint32_t count = std::min<uint32_t>(n_rows - begin, kHeadRows);
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t m = RowAt(rows, op.logit_rows, begin + i);
        op.elementwise->quantize(op.x.row(m) + head * op.x_stride, ActRow(op.act, i), op.inputs);
      }
      const auto to = [&](uint32_t i) {
        return op.y.row(first + begin + i) + head * op.y_stride + outputs.begin;
      };
      op.gemm->Run(op.panels + (panel - op.first_panel) * panel_bytes, ActRow(op.act, 0),
                   whole ? to(0) : op.tile.row(0), next - panel, count);
      for (uint32_t i = 0; !whole && i < count; ++i)
        std::copy_n(op.tile.row(i), outputs.count(), to(i));
    }
  }
}

void LatentStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const LatentOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const auto [begin, end] = RowsOf(rows.rows, op.share);
  for (uint32_t m = rows.first_row + begin; m < rows.first_row + end; ++m) {
    float* const to = op.to.row(m);
    const float* const queries = op.queries.row(m) + op.first_rotated;
    for (size_t h = 0; h < op.heads; ++h)
      std::copy_n(queries + h * op.query_stride, op.rotated, to + h * op.head_stride);
    const float* const key = op.x.row(m) + op.key;
    float* const r = std::copy_n(key, op.rotated, to + op.heads * op.head_stride);
    op.elementwise->rms_norm(key + op.rotated, op.weight, r, op.rank, op.epsilon);
  }
}

void KeepStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const KeepOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  for (uint32_t m = 0; m < rows.logit_rows; ++m) {
    const uint32_t from = RowAt(rows, true, m), to = rows.first_row + m;
    const auto at = [&](uint32_t row) { return op.rows + row * op.stride_bytes + op.first; };
    if (from != to) std::copy_n(at(from), op.count, at(to));  // ascending, so from a later row
  }
}

void QuantizeStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const QuantizeOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const auto [begin, end] = RowsOf(op.logit_rows ? rows.logit_rows : rows.rows, op.share);
  for (uint32_t m = begin; m < end; ++m) {
    const float* x = op.x.row(RowAt(rows, op.logit_rows, m));
    op.elementwise->quantize(x, ActRow(op.out, rows.first_row + m), op.n);
  }
}

void GroupNormStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const GroupNormOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  const auto [begin, end] = RowsOf(op.logit_rows ? rows.logit_rows : rows.rows, op.share);
  const uint32_t first = rows.first_row;
  const size_t of_group = op.n / op.groups;
  const float* x[kernels::kNormRows];
  float* normed[kernels::kNormRows];
  for (uint32_t m = begin; m < end;) {
    const uint32_t count = std::min<uint32_t>(end - m, kernels::kNormRows);
    for (size_t g = 0; g < op.n; g += of_group) {
      for (uint32_t i = 0; i < count; ++i) {
        x[i] = op.x.row(RowAt(rows, op.logit_rows, m + i)) + op.first + g;
        normed[i] = op.scratch + i * op.n + g;
      }
      op.elementwise->rms_norms(x, op.weight + g, normed, count, of_group, op.epsilon);
    }
    EndLap(StepKind::kNorm);
    for (uint32_t i = 0; i < count; ++i)
      op.elementwise->quantize(op.scratch + i * op.n,
                               ActRow(op.out, first + m + i) + op.first / kernels::kBlock, op.n);
    EndLap(StepKind::kQuantize);
    m += count;
  }
}

void ProductStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const ProductOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  if (rows.rows == 0 || op.n_panels == 0) return;
  const uint32_t first = rows.first_row;
  op.gemm->Run(op.panels, ActRow(op.x, first), op.y.row(first), op.n_panels, rows.rows);
  if (op.bias == nullptr) return;
  for (uint32_t m = first; m < first + rows.rows; ++m)
    op.elementwise->add(op.y.row(m), op.bias, op.n_panels * kernels::kPanelRows);
}

void HeadStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const HeadOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  if (rows.logit_rows == 0 || op.n_panels == 0 || !rows.lm_head) return;
  constexpr size_t kPanels = 32;  // whose logits of a few rows are still in L1 when they are read
  const size_t panel_bytes = op.gemm->shape().panel.bytes();
  for (size_t i = 0; i < op.n_panels; i += kPanels) {
    const Range<size_t> panels = {op.first_panel + i,
                                  op.first_panel + std::min(i + kPanels, op.n_panels)};
    op.gemm->Run(op.panels + i * panel_bytes, ActRow(op.x.plane[0], 0),
                 op.logits.row(0) + panels.begin * kernels::kPanelRows, panels.count(),
                 rows.logit_rows);
    for (uint32_t m = 0; m < rows.logit_rows; ++m) {
      float* const logits = op.logits.row(m);
      for (size_t token = op.vocab; token < panels.end * kernels::kPanelRows; ++token)
        logits[token] = -std::numeric_limits<float>::infinity();  // padding, not a token
      op.elementwise->largest_of_16(logits + panels.begin * kernels::kPanelRows,
                                    op.largest.row(m) + panels.begin, panels.count());
    }
  }
}

void RefineStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const HeadOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  if (!rows.lm_head) return;
  const size_t panel_bytes = op.gemm->shape().panel.bytes();
  for (uint32_t m = 0; m < rows.logit_rows; ++m) {
    const float* const largest = op.largest.row(m);
    const LikelyPanels likely({largest, CeilDiv(op.vocab, kernels::kPanelRows)});
    for (size_t i = 0; i < op.n_panels; ++i) {
      if (!likely.Has(largest[op.first_panel + i])) continue;
      alignas(kCacheLineBytes) float rest[kernels::kPanelRows];
      op.gemm->Run(op.panels + i * panel_bytes, ActRow(op.x.plane[1], m), rest, 1, 1);
      float* const logits = op.logits.row(m) + (op.first_panel + i) * kernels::kPanelRows;
      for (size_t r = 0; r < kernels::kPanelRows; ++r) logits[r] = logits[r] + rest[r];
    }
    if (op.cap == 0.0f) continue;
    const size_t first = op.first_panel * kernels::kPanelRows;
    const size_t end = std::min(op.vocab, first + op.n_panels * kernels::kPanelRows);
    op.elementwise->cap(op.logits.row(m) + first, end - first, op.cap);
  }
}

void AddPartsStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const AddPartsOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  for (uint32_t m = rows.first_row; m < rows.first_row + rows.rows; ++m) {
    for (size_t i = 0; i < op.n_parts; ++i)
      op.elementwise->add(op.y.row(m), op.parts[i].row(m), op.n);
  }
}

void GateStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const GateOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  if (rows.rows == 0) return;
  const float* tile = op.tile.row(rows.first_row);
  op.gate(tile, tile + UpInTile(op.unit_panels), op.tile.stride, ActRow(op.out, rows.first_row),
          op.out.stride_bytes, rows.rows);
}

void InputGateStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const InputGateOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  constexpr uint32_t kPanels = 2;
  const size_t unit_bytes = kPanels * op.gemm->shape().panel.bytes();
  for (size_t unit = op.blocks.begin; rows.rows != 0 && unit < op.blocks.end; ++unit) {
    const size_t first = unit * kernels::kBlock;
    const size_t count = std::min(kernels::kBlock, op.size - first);
    op.gemm->Run(op.units + (unit - op.blocks.begin) * unit_bytes, ActRow(op.x, rows.first_row),
                 op.tile.data, kPanels, rows.rows);
    for (uint32_t m = 0; m < rows.rows; ++m) {
      float* const inputs = op.tile.row(m) + kernels::kBlock;
      std::copy_n(op.inputs.row(rows.first_row + m) + first, count, inputs);
      std::fill(inputs + count, inputs + kernels::kBlock, 0.0f);
    }
    op.gate(op.tile.data, op.tile.data + kernels::kBlock, op.tile.stride,
            ActRow(op.out, rows.first_row) + unit, op.out.stride_bytes, rows.rows);
  }
}

// Of rows [first, first + count) of the buffers.
void FfnOfRows(const FfnOperand& op, uint32_t first, uint32_t count) {
  const size_t unit_bytes = op.unit_panels * op.gemm->shape().panel.bytes();
  const size_t unit_rows = op.unit_panels * kernels::kPanelRows;
  for (size_t unit = 0; unit < op.n_units; ++unit) {
    op.gemm->Run(op.units + unit * unit_bytes, ActRow(op.x, first), op.tile.data, op.unit_panels,
                 count);
    if (op.biases != nullptr) {
      for (uint32_t m = 0; m < count; ++m)
        op.elementwise->add(op.tile.row(m), op.biases + unit * unit_rows, unit_rows);
    }
    EndLap(StepKind::kGateUp);
    op.gate(op.tile.data, op.tile.data + UpInTile(op.unit_panels), op.tile.stride,
            ActRow(op.out, first) + unit, op.out.stride_bytes, count);
    EndLap(StepKind::kActivation);
  }
}

void FfnStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const FfnOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  if (!op.logit_rows) {
    if (rows.rows > 0) FfnOfRows(op, rows.first_row, rows.rows);
    return;
  }
  for (uint32_t i = 0, run = 1; i < rows.logit_rows; i += run) {
    const uint32_t first = rows.logit_row[i];
    for (run = 1; i + run < rows.logit_rows && rows.logit_row[i + run] == first + run;) ++run;
    FfnOfRows(op, first, run);
  }
}

}  // namespace larder::weight_node
