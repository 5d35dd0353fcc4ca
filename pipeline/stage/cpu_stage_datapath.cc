#include <algorithm>
#include <array>

#include "base/check.h"
#include "pipeline/stage/cpu_stage.h"

namespace larder::pipeline::inline stage {

void CpuStage::Execute(model::BatchRows& batch, uint32_t first_half) {
  LARDER_CHECK(batch.rows >= 1 && batch.rows <= max_batch_tokens() &&
               batch.logit_rows <= max_logit_rows());
  LARDER_CHECK(first_half < batch.rows && (first_half == 0 || separated()));
  const auto form = static_cast<size_t>(packed_.FormOf(batch.rows));
  if (sockets_) {
    if (refresh_.Due(packed_.pool().next_base_epoch())) RefreshFlags();
    sockets_->Send(batch, first_half, packed_.pool().next_base_epoch());
  }
  if (attention_) attention_->Map(batch);
  if (kv_part_) kv_part_->Collect();
  const auto logit_rows = static_cast<uint32_t>(
      std::lower_bound(batch.logit_row, batch.logit_row + batch.logit_rows, first_half) -
      batch.logit_row);  // of the first half
  model::BatchRows halves[kHalves] = {batch, batch};
  halves[0].rows = first_half;
  halves[0].logit_rows = logit_rows;
  halves[1].first_row = first_half;
  halves[1].rows -= first_half;
  halves[1].slot += first_half;
  halves[1].position += first_half;
  halves[1].logit_rows -= logit_rows;
  halves[1].logit_row += logit_rows;
  kept_rows_.Clear();
  model::BatchRows kept_halves[kHalves] = {kept_rows_.Take(halves[0], 0),
                                           kept_rows_.Take(halves[1], first_half)};
  model::BatchRows kept = kept_halves[1];  // all of them, if there is one part
  kept.first_row = 0;
  kept.rows = kept.logit_rows = batch.logit_rows;
  kept.logit_row = kept_rows_.rows();
  std::array<void*, kParts> parts;
  parts[kWhole] = &batch;
  parts[kKept] = &kept;
  for (size_t half = 0; half < kHalves; ++half) {
    parts[kFirstHalf + half] = &halves[half];
    parts[kKeptFirstHalf + half] = &kept_halves[half];
  }
  packed_.KeepLogitRows(keeps_logit_rows() ? kept : batch);
  packed_.live().Begin(threadpool::ReadTicks());
  packed_.pool().Execute(programs_[form][first_half == 0 ? 0 : 1].programs, parts,
                         static_cast<uint32_t>(plan().config.layers));
  packed_.live().End(threadpool::ReadTicks());
}

void CpuStage::Order(std::span<const KvOrder> orders) {
  kv_part_ ? kv_part_->Take(orders) : sockets_->Order(orders);
}

void CpuStage::AbandonOrders() { kv_part_ ? kv_part_->Abandon() : sockets_->AbandonOrders(); }

KvReport CpuStage::kv_report(AttentionId socket) const {
  return kv_part_ ? kv_part_->report() : sockets_->kv_report(socket);
}

void CpuStage::RefreshFlags() {
  for (const HeadFlags& of_kind : head_flags_) {
    for (const auto& of_thread : of_kind.signals[1]) {
      for (sync::EpochFlag* flag : of_thread) {
        if (flag != nullptr) flag->Signal(packed_.pool().next_base_epoch());
      }
    }
  }
  packed_.weights().RefreshFlags(packed_.pool().next_base_epoch());
}

}  // namespace larder::pipeline::stage
