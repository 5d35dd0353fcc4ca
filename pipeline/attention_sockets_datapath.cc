#include <algorithm>

#include "base/check.h"
#include "pipeline/attention_sockets.h"

namespace larder::pipeline {

void AttentionSockets::SendMessage(size_t socket, FrameMessage::Kind kind, const threadpool::FrameRows& frame,
                                   uint32_t first, uint32_t end, uint32_t base_epoch) {
  rdma::ShmLink& link = *senders_[socket];
  LARDER_CHECK(link.WaitSend({}), "attention socket {}: link fault", socket);
  const sync::SendSlot slot = link.BeginSend();
  auto& message = *reinterpret_cast<FrameMessage*>(slot.bytes);
  message.kind = kind;
  message.rows = end - first;
  message.first_row = first;
  message.base_epoch = base_epoch;
  const size_t max_rows = plan_.options.prefill_rows;
  const auto first_slot =
      kind == FrameMessage::Kind::kRows ? static_cast<int32_t>(plan_.attention[socket].first_slot) : 0;
  for (uint32_t m = first; m < end; ++m) {
    message.slot()[m - first] = frame.slot[m] - first_slot;
    message.position(max_rows)[m - first] = frame.position[m];
  }
  link.EndSend();
}

void AttentionSockets::Send(const threadpool::FrameRows& frame, uint32_t base_epoch) {
  uint32_t row = 0;
  for (size_t socket = 0; socket < plan_.attention.size(); ++socket) {
    const uint32_t first = row;
    const auto end_slot =
        static_cast<int32_t>(plan_.attention[socket].first_slot + plan_.attention[socket].slots);
    while (row < frame.rows && frame.slot[row] < end_slot) ++row;
    SendMessage(socket, FrameMessage::Kind::kRows, frame, first, row, base_epoch);
  }
  LARDER_CHECK(row == frame.rows, "rows of attention sockets are not in order");
}

}  // namespace larder::pipeline
