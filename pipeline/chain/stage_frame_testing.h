// A valid frame in memory, which tests and the fuzzer modify.
#pragma once

#include <algorithm>
#include <vector>

#include "pipeline/chain/stage_frame.h"

namespace larder::pipeline::inline chain {

inline StageFrameShape TestFrameShape() {
  return {
      .plan_hash = 0x1234567890abcdef,
      .rows = {.capacity = {.slots = 5, .context = 600, .max_batch_tokens = 8, .max_in_flight = 3},
               .slot_ends = {SlotId(2), SlotId(5)},
               .chunk_ends = {6, 15}},
      .max_logit_rows = 4,
      .dim = 3,
      .inputs = 2,
      .stages = 2,
      .expert_numbers = {0, 40}};
}

struct TestFrame {
  // Step 7: six rows, cut after four; two of slot 1, one of slots 3, 4, then 0, 2.
  explicit TestFrame(const StageFrameShape& frame_shape)
      : shape(frame_shape), bytes(shape.bytes()) {
    view().header() = {.plan_hash = shape.plan_hash,
                       .step = 7,
                       .micro_batch = 1,
                       .rows = 6,
                       .first_half = 4,
                       .logit_rows = 2,
                       .residual_rows = 6,
                       .kv_updates = 2,
                       .kv_orders = 2};
    const int32_t slots[] = {1, 1, 3, 4, 0, 2};
    const uint32_t positions[] = {10, 11, 99, 0, 5, 6};
    for (size_t m = 0; m < 6; ++m) {
      view().slot()[m] = SlotId(slots[m]);
      view().position()[m] = positions[m];
    }
    view().logit_row()[0] = 1;
    view().logit_row()[1] = 5;
    view().kv_update(6)[0] = {SlotId(1), 2, 5, 0, 0};
    view().kv_update(6)[1] = {SlotId(3), 0, 6, 14, 9};
    view().kv_order(6, 2)[0] = {{1, 2}, KvOrder::Kind::kStore, 0, 14};
    view().kv_order(6, 2)[1] = {{3, 4}, KvOrder::Kind::kLoad, 63, 0};
  }
  // Its orders alone, without rows.
  void MakeOrders() {
    const KvOrder orders[] = {view().kv_order(6, 2)[0], view().kv_order(6, 2)[1]};
    StageFrameHeader& header = view().header();
    header.kind = StageFrameHeader::Kind::kOrders;
    header.rows = header.first_half = header.logit_rows = header.residual_rows = 0;
    header.kv_updates = 0;
    std::copy_n(orders, 2, view().kv_order(0, 0));
  }
  StageFrameView<std::byte> view() { return {bytes.data(), shape}; }
  const char* Check(bool from_last = false) const {
    return FrameCopy(shape).Take(bytes, 7, from_last);
  }

  const StageFrameShape shape;
  std::vector<std::byte> bytes;
};

}  // namespace larder::pipeline::chain
