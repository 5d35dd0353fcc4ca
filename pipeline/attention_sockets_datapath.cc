#include <algorithm>

#include "base/check.h"
#include "pipeline/attention_sockets.h"

namespace larder::pipeline {

FrameMessage& AttentionSockets::BeginMessage(size_t socket, FrameMessage::Kind kind, uint32_t base_epoch) {
  rdma::ShmLink& link = *senders_[socket];
  LARDER_CHECK(link.WaitSend({}), "attention socket {}: link fault", socket);
  const sync::SendSlot slot = link.BeginSend();
  auto& message = *reinterpret_cast<FrameMessage*>(slot.bytes);
  message = FrameMessage{.kind = kind, .base_epoch = base_epoch, .halves = 1, .reserved = 0, .half = {}};
  return message;
}

void AttentionSockets::Send(const threadpool::FrameRows& frame, uint32_t first_half, uint32_t base_epoch) {
  const size_t max_rows = plan_.options.prefill_rows;
  const uint32_t halves = first_half == 0 ? 1 : 2;
  const uint32_t ends[kHalves] = {halves == 1 ? frame.rows : first_half, frame.rows};
  uint32_t next[kHalves] = {0, first_half};  // the first row of each half that has no socket yet
  for (size_t socket = 0; socket < plan_.attention.size(); ++socket) {
    FrameMessage& message = BeginMessage(socket, FrameMessage::Kind::kRows, base_epoch);
    message.halves = halves;
    const auto first_slot = static_cast<int32_t>(plan_.attention[socket].first_slot);
    const auto end_slot = static_cast<int32_t>(first_slot + plan_.attention[socket].slots);
    uint32_t rows = 0;
    for (uint32_t h = 0; h < halves; ++h) {
      uint32_t& row = next[h];
      message.half[h].first_row = row;
      for (; row < ends[h] && frame.slot[row] < end_slot; ++row, ++rows) {
        message.slot()[rows] = frame.slot[row] - first_slot;
        message.position(max_rows)[rows] = frame.position[row];
      }
      message.half[h].rows = row - message.half[h].first_row;
    }
    senders_[socket]->EndSend();
  }
  LARDER_CHECK(next[0] == ends[0] && (halves == 1 || next[1] == ends[1]),
               "rows of attention sockets are not in order");
}

}  // namespace larder::pipeline
