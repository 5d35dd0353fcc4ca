// The loop of an attention socket: a frame's message, its attention steps, the next.
#include "base/check.h"
#include "pipeline/attention_socket.h"
#include "threadpool/frame.h"

namespace larder::pipeline {

void AttentionSocket::Serve() {
  const size_t max_rows = plan_.options.prefill_rows;
  for (;;) {
    LARDER_CHECK(frames_.WaitReceive(wait_), "attention socket {}: link fault", index_);
    const sync::ReceivedFrame received = frames_.BeginReceive();
    const auto& message = *reinterpret_cast<const FrameMessage*>(received.bytes);
    if (message.kind == FrameMessage::Kind::kStop) {
      frames_.EndReceive();
      return;
    }
    // A frame is as untrusted as its sender's memory: what indexes ours is checked here, once.
    LARDER_CHECK(message.rows <= max_rows && message.first_row + message.rows <= max_rows &&
                     message.base_epoch == pool_->next_base_epoch(),
                 "attention socket {}: frame of {} rows at {}, epoch {}", index_, message.rows,
                 message.first_row, message.base_epoch);
    const attention_node::KvShape& kv = node_->kv().shape();
    for (uint32_t m = 0; m < message.rows; ++m) {
      LARDER_CHECK(static_cast<size_t>(message.slot()[m]) < kv.slots &&
                   message.position(max_rows)[m] < kv.context);
    }
    threadpool::FrameRows frame{.rows = message.rows,
                                .first_row = message.first_row,
                                .token = nullptr,
                                .slot = message.slot(),
                                .position = message.position(max_rows),
                                .logit_rows = 0,
                                .logit_row = nullptr};
    pool_->Execute(programs_, &frame, static_cast<uint32_t>(plan_.config.layers));
    frames_.EndReceive();
  }
}

}  // namespace larder::pipeline
