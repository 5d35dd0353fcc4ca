#include <algorithm>

#include "kernels/formats/act_block.h"
#include "kernels/formats/panel_format.h"
#include "model/step/batch_rows.h"
#include "model/step/step_kind.h"
#include "threadpool/timeline.h"
#include "weight_node/expert_steps.h"

namespace larder::weight_node {
namespace {

using kernels::ActBlock;
using model::BatchRows;
using model::StepKind;
using threadpool::EndLap;

inline ActBlock* ActRow(const ActRows& rows, size_t m) {
  return reinterpret_cast<ActBlock*>(rows.row(m));
}

}  // namespace

void RouteRow(const RouterOperand& op, const float* x, size_t n, size_t m) {
  float* const logits = op.chooses ? op.scratch : op.logits.row(m);
  for (size_t i = 0; i < op.n_rows; ++i) {
    const RouterOperand::Rows& rows = op.rows[i];
    if (rows.count == 0) continue;
    op.elementwise->dots(x, rows.weights, logits + rows.first, rows.count, n);
    if (rows.biases != nullptr) op.elementwise->add(logits + rows.first, rows.biases, rows.count);
  }
  if (op.chooses) ChooseExperts(op.rule, *op.elementwise, op.scratch, op.by, op.chosen, m);
}

void RouteStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const RouteOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  for (uint32_t m = rows.first_row; op.chooses && m < rows.first_row + rows.rows; ++m) {
    std::copy_n(op.logits.row(m), RouterFloats(op.rule.experts), op.scratch);
    ChooseExperts(op.rule, *op.elementwise, op.scratch, op.by, op.chosen, m);
  }
  SortByExpert(op.rule, op.chosen, rows.first_row, rows.rows, op.table);
  if (op.counters != nullptr) op.counters->Count(rows, op.chosen, op.table);
}

void ExpertFfnStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const ExpertFfnOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  if (rows.rows == 0 || op.first == op.end) return;
  const auto experts = static_cast<uint32_t>(op.experts);
  const bool shares = op.share.threads > 1;
  const Range<uint64_t> part =
      shares ? PartOfWork(*op.table, experts, op.end / experts, op.share.thread, op.share.threads)
             : Range<uint64_t>{0, UINT64_MAX};
  uint64_t done = 0;
  const size_t unit_rows = op.unit_panels * kernels::kPanelRows;
  const uint32_t first_row_of_units = op.first / experts * experts;
  for (uint32_t e = 0; e < experts; ++e) {
    const uint32_t count = op.table->count(e), pair = op.table->first[e];
    if (count == 0) continue;
    uint32_t unit = first_row_of_units + e;
    if (unit < op.first) unit += experts;
    if (unit >= op.end) continue;
    for (; unit < op.end; unit += experts) {
      const uint64_t at = done;
      done += WorkOf(count);
      if (!part.contains(at)) continue;
      const ExpertUnit& of = op.units[unit - op.first];
      op.gemm->RunListed(of.panels, ActRow(op.x, 0), op.table->row + pair, op.tile.data,
                         op.unit_panels, count);
      for (uint32_t i = 0; of.biases != nullptr && i < count; ++i)
        op.elementwise->add(op.tile.row(i), of.biases, unit_rows);
      EndLap(StepKind::kGateUp);
      op.gate(op.tile.data, op.tile.data + UpInTile(op.unit_panels), op.tile.stride,
              ActRow(op.out, pair) + unit / experts, op.out.stride_bytes, count);
      EndLap(StepKind::kActivation);
    }
  }
}

void ExpertDownStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const ExpertDownOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  if (rows.rows == 0 || op.n_panels == 0) return;
  const size_t columns = op.n_panels * kernels::kPanelRows;
  const uint32_t first = rows.first_row, end = first + rows.rows;
  for (uint32_t m = 0; m < rows.rows; ++m) std::fill_n(op.sums.row(m), columns, 0.0f);
  for (size_t e = 0; e < op.experts; ++e) {
    const uint32_t count = op.table->count(e), pair = op.table->first[e];
    if (count == 0) continue;
    op.gemm->Run(op.panels + e * op.expert_bytes, ActRow(op.z, pair), op.y.data, op.n_panels,
                 count);
    for (uint32_t i = 0; i < count; ++i) {
      if (op.biases != nullptr)
        op.elementwise->add(op.y.row(i), op.biases + e * op.bias_stride, columns);
      op.elementwise->add_scaled(op.sums.row(op.table->row[pair + i] - first), op.y.row(i),
                                 op.table->weight[pair + i], columns);
    }
  }
  if (op.shared.gemm != nullptr) {
    op.shared.gemm->Run(op.shared.panels, ActRow(op.shared.z, first), op.y.data, op.n_panels,
                        rows.rows);
    for (uint32_t m = 0; m < rows.rows; ++m) {
      op.elementwise->add_scaled(op.sums.row(m), op.y.row(m), op.shared.weights[first + m],
                                 columns);
    }
  }
  for (uint32_t m = first; m < end; ++m) {
    if (op.adds) {
      op.elementwise->add(op.x.row(m), op.sums.row(m - first), columns);
    } else {
      std::copy_n(op.sums.row(m - first), columns, op.x.row(m));
    }
  }
}

}  // namespace larder::weight_node
