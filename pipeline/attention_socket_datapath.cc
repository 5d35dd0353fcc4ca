// The loop of an attention socket: a frame's message, its attention steps, the next.
#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "pipeline/attention_socket.h"
#include "threadpool/frame.h"

namespace larder::pipeline {

namespace {
uint64_t Clock() { return static_cast<uint64_t>(NowNs()); }  // datapath-ok: two vDSO reads a frame
}  // namespace

void AttentionSocket::Serve(SocketStatus* status) {
  const size_t max_rows = plan_.options.prefill_rows;
  for (uint64_t idle_ns = Clock();;) {
    LARDER_CHECK(frames_.WaitReceive(wait_), "attention socket {}: link fault", index_);
    const sync::ReceivedFrame received = frames_.BeginReceive();
    const uint64_t start_ns = Clock();
    const auto& message = *reinterpret_cast<const FrameMessage*>(received.bytes);
    if (message.kind == FrameMessage::Kind::kPing) {
      report_.pong.Signal(message.base_epoch, waits_.weight.mode);
      frames_.EndReceive();
      continue;
    }
    SocketStatus::Add(status->wait_ns, start_ns - idle_ns);
    SocketStatus::Add(status->frames_started, 1);
    if (message.kind == FrameMessage::Kind::kStop) {
      frames_.EndReceive();
      SocketStatus::Add(status->frames_finished, 1);
      return;
    }
    // A frame is as untrusted as its sender's memory: what indexes ours is checked here, once.
    LARDER_CHECK(
        (message.halves == 1 || message.halves == kHalves) && message.base_epoch == pool_->next_base_epoch(),
        "attention socket {}: frame of {} halves, epoch {}", index_, message.halves, message.base_epoch);
    const attention_node::KvShape& kv = node_->kv().shape();
    threadpool::FrameRows halves[kHalves];
    uint32_t rows = 0;
    for (uint32_t h = 0; h < message.halves; ++h) {
      const FrameMessage::Half half = message.half[h];
      LARDER_CHECK(half.rows <= max_rows - rows && half.first_row <= max_rows - half.rows,
                   "attention socket {}: {} rows at {}", index_, half.rows, half.first_row);
      halves[h].rows = half.rows;
      halves[h].first_row = half.first_row;
      halves[h].slot = message.slot() + rows;
      halves[h].position = message.position(max_rows) + rows;
      rows += half.rows;
    }
    for (uint32_t m = 0; m < rows; ++m) {
      LARDER_CHECK(static_cast<size_t>(message.slot()[m]) < kv.slots &&
                   message.position(max_rows)[m] < kv.context);
    }
    if (refresh_.Due(message.base_epoch)) {
      for (sync::EpochFlag* flag : second_half_) flag->Signal(message.base_epoch);
    }
    void* const parts[] = {&halves[0], &halves[1]};
    const uint64_t waited_ns = pool_->waited_ns();
    pool_->Execute(programs_[message.halves - 1], parts, static_cast<uint32_t>(plan_.config.layers));
    frames_.EndReceive();
    idle_ns = Clock();
    // Waiting for the weight socket, layer by layer, is no work.
    const uint64_t took_ns = idle_ns - start_ns;
    const uint64_t inside_ns = std::min(pool_->waited_ns() - waited_ns, took_ns);
    SocketStatus::Add(status->wait_ns, inside_ns);
    SocketStatus::Add(status->step_ns, took_ns - inside_ns);
    SocketStatus::Add(status->rows, rows);
    SocketStatus::Add(status->frames_finished, 1);
    SocketReport report = ReportOf(*status);
    report.round_trip_ns = report_.status.round_trip_ns.load(std::memory_order_relaxed);
    Show(report, report_.status);
  }
}

}  // namespace larder::pipeline
