// Copies and checks a frame that came over a link: plain arithmetic, once per frame, over few rows.
#include <algorithm>

#include "pipeline/chain/stage_frame.h"
#include "sync/copy_once.h"

namespace larder::pipeline::inline chain {
namespace {

using View = StageFrameView<const std::byte>;

const char* CheckHeader(const StageFrameHeader& header, size_t frame_bytes,
                        const StageFrameShape& shape, uint64_t step, bool from_last) {
  if (header.magic != kStageFrameMagic) return "not a stage's frame (wrong magic number)";
  if (header.version != kStageFrameVersion) return "another frame version";
  if (header.plan_hash != shape.plan_hash) return "another plan's frame";
  if (header.kind == StageFrameHeader::Kind::kStop) return nullptr;
  const bool has_rows = header.kind == StageFrameHeader::Kind::kRows;
  if (!has_rows && header.kind != StageFrameHeader::Kind::kOrders) return "an unknown kind";
  if (header.step != step || header.micro_batch != step % shape.rows.capacity.max_in_flight)
    return "not the step that was expected";
  if ((header.rows > 0) != has_rows || header.rows > shape.max_rows())
    return "an impossible number of rows";
  if (header.first_half > 0 && header.first_half >= header.rows)
    return "a first half that leaves nothing for the second";
  if (header.logit_rows > header.rows) return "more rows with logits than rows";
  if (header.logit_rows > shape.max_logit_rows)
    return "more rows with logits than there is room for";
  if (header.residual_rows != (from_last ? header.logit_rows : header.rows))
    return "residuals of rows other than those it names";
  if (header.kv_updates > (from_last || !has_rows ? 0 : shape.rows.max_kv_updates()))
    return "more changes to the KV table than there is room for";
  if (header.kv_orders > (from_last ? 0 : kKvOrderPlaces))
    return "more KV orders than there is room for";
  if (frame_bytes < (from_last
                         ? shape.bytes_from_last(header.residual_rows)
                         : shape.bytes(header.residual_rows, header.kv_updates, header.kv_orders)))
    return "fewer bytes than its rows need";
  return nullptr;
}

const char* CheckLogitRows(const View& view) {
  const StageFrameHeader& header = view.header();
  for (uint32_t i = 0; i < header.logit_rows; ++i) {
    const uint32_t row = view.logit_row()[i];
    if (row >= header.rows || (i > 0 && row <= view.logit_row()[i - 1]))
      return "rows with logits out of order";
  }
  return nullptr;
}

const char* CheckExpertReports(const View& view, const StageFrameShape& shape) {
  for (size_t stage = 0; stage < shape.expert_reports(); ++stage) {
    const uint32_t first = view.expert_report()[stage].first;
    if (first != 0 && first >= shape.expert_numbers[stage])
      return "counters of experts that do not exist";
  }
  return nullptr;
}

}  // namespace

void FrameCopy::CopyField(std::span<const std::byte> frame, size_t offset, size_t bytes) {
  sync::CopyOnce(bytes_.data() + offset, frame.data() + offset, bytes);
}

const char* FrameCopy::Take(std::span<const std::byte> frame, uint64_t step, bool from_last) {
  if (frame.size() < shape_.bytes(0, 0, 0) || frame.size() > shape_.bytes())
    return "a size that no frame can have";
  CopyField(frame, 0, sizeof(StageFrameHeader));
  if (const char* wrong = CheckHeader(header(), frame.size(), shape_, step, from_last))
    return wrong;
  if (header().kind == StageFrameHeader::Kind::kStop) return nullptr;
  // Copies only the used part of each field, which has room for max_batch_tokens.
  CopyField(frame, shape_.logit_row_offset(), header().logit_rows * sizeof(uint32_t));
  CopyField(frame, shape_.report_offset(), shape_.reports() * sizeof(SocketReport));
  CopyField(frame, shape_.expert_report_offset(), shape_.expert_reports() * sizeof(ExpertReport));
  const View sent(frame.data(), shape_);
  residual_ = sent.residual();
  if (const char* wrong = CheckLogitRows(view())) return wrong;
  if (const char* wrong = CheckExpertReports(view(), shape_)) return wrong;
  return rows_.Take({.rows = header().rows,
                     .first_half = header().first_half,
                     .kv_updates = header().kv_updates,
                     .kv_orders = header().kv_orders,
                     .slot = sent.slot(),
                     .position = sent.position(),
                     .kv_update = sent.kv_update(header().residual_rows),
                     .kv_order = sent.kv_order(header().residual_rows, header().kv_updates)});
}

}  // namespace larder::pipeline::chain
