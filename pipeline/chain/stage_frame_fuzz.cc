// Overwrites a valid frame with any bytes: it is refused, or every index that a stage would use is
// in range.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "pipeline/chain/stage_frame_testing.h"

namespace larder::pipeline::inline chain {
namespace {

void Check(const uint8_t* data, size_t size) {
  TestFrame frame(TestFrameShape());
  if (size > 0 && (data[0] & 1) != 0) frame.MakeOrders();
  if (size > 0) frame.bytes.resize(std::min(frame.bytes.size(), size_t{40} + 8 * data[0]));
  for (size_t i = 1; i < size && i <= frame.bytes.size(); ++i)
    frame.bytes[i - 1] ^= std::byte{data[i]};
  const StageFrameShape& shape = frame.shape;
  for (const bool from_last : {false, true}) {
    std::vector<std::byte> came = frame.bytes;
    FrameCopy copy(shape);
    if (copy.Take(came, 7, from_last) != nullptr) continue;
    std::fill(came.begin(), came.end(), std::byte{0xff});  // a peer may do this from here on
    const StageFrameHeader& header = copy.header();
    if (header.kind == StageFrameHeader::Kind::kStop) continue;
    // What Stage::Execute() and Head() require, as checks that abort.
    const bool has_rows = header.kind == StageFrameHeader::Kind::kRows;
    LARDER_CHECK((header.rows >= 1) == has_rows && header.rows <= shape.max_rows() &&
                 (header.first_half < header.rows || !has_rows) &&
                 header.first_half <= header.rows);
    LARDER_CHECK(header.logit_rows <= header.rows && header.logit_rows <= shape.max_logit_rows);
    LARDER_CHECK(frame.bytes.size() >=
                 (from_last
                      ? shape.bytes_from_last(header.residual_rows)
                      : shape.bytes(header.residual_rows, header.kv_updates, header.kv_orders)));
    LARDER_CHECK(has_rows || header.kv_updates == 0);
    for (size_t stage = 0; stage < shape.expert_reports(); ++stage) {
      LARDER_CHECK(copy.expert_report()[stage].first <
                   std::max<size_t>(1, shape.expert_numbers[stage]));
    }
    for (const KvOrder& order : copy.kv_orders())
      LARDER_CHECK(order.place < kKvOrderPlaces && order.chunk < 15);
    for (uint32_t m = 0; m < header.rows; ++m) {
      LARDER_CHECK(copy.slot()[m].index() < shape.rows.capacity.slots &&
                   copy.position()[m] < shape.rows.capacity.context);
    }
    for (uint32_t i = 0; i < header.logit_rows; ++i)
      LARDER_CHECK(copy.logit_row()[i] < header.rows);
    for (uint32_t i = 0; i < header.kv_updates; ++i) {
      const model::KvUpdate& update = copy.kv_update()[i];
      const size_t first = update.slot < shape.rows.slot_ends[0] ? 0 : 6, end = first == 0 ? 6 : 15;
      const Range<size_t> chunks{first, end};
      LARDER_CHECK(update.slot.index() < shape.rows.capacity.slots &&
                   update.index < shape.rows.slot_chunks());
      LARDER_CHECK(chunks.contains(update.chunk));
      LARDER_CHECK(update.copied_positions == 0 || chunks.contains(update.copied_from));
    }
    // AttentionClient::Send() requires the rows of each half in the order of attention sockets.
    const uint32_t ends[] = {header.first_half, header.rows};
    for (uint32_t half = 0, m = 0; half < 2; ++half) {
      for (const SlotId end : shape.rows.slot_ends) {
        while (m < ends[half] && copy.slot()[m] < end) ++m;
      }
      LARDER_CHECK(m == ends[half]);
    }
  }
}

}  // namespace
}  // namespace larder::pipeline::chain

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::pipeline::Check(data, size);
  return 0;
}
