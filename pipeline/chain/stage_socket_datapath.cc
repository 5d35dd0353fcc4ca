// The loop of a stage: receive a frame, compute its layers, send it on.
#include <algorithm>

#include "base/clock.h"
#include "pipeline/chain/stage_socket.h"

namespace larder::pipeline::inline chain {
StageSocket::Outcome StageSocket::Run(rdma::FrameLink& in, rdma::FrameLink& out,
                                      const char** wrong) {
  const bool last = index_ + 1 == chain_.stages.size();
  uint64_t before = CounterNs();
  for (uint64_t step = 0;; ++step) {
    if (!in.WaitReceive(wait_)) return Outcome::kLost;
    const sync::ReceivedFrame received = in.BeginReceive();
    if (!received) return Outcome::kLost;
    const uint64_t came = CounterNs();
    *wrong = frame_.Take({received.bytes, received.size_bytes}, step, false);
    if (*wrong != nullptr) {
      SocketStatus::Add(status_.wrong_frames, 1);
      return Outcome::kWrongFrame;
    }
    if (!out.WaitSend(wait_)) return Outcome::kLost;
    const sync::SendSlot slot = out.BeginSend();
    if (!slot) return Outcome::kLost;
    const uint64_t started = CounterNs(), waited_ns = stage_->waited_ns();
    const StageFrameView<std::byte> to(slot.bytes, shape_);
    // Only residuals are read from either slot, since a neighbour may be able to write both.
    const StageFrameHeader& header = frame_.header();
    to.header() = header;
    if (header.kind == StageFrameHeader::Kind::kStop) {
      out.EndSend(shape_.bytes(0, 0, 0));
      in.EndReceive();
      return Outcome::kStopped;
    }
    SocketStatus::Add(status_.frames_started, 1);
    std::copy_n(frame_.slot(), header.rows, to.slot());
    std::copy_n(frame_.position(), header.rows, to.position());
    std::copy_n(frame_.logit_row(), header.logit_rows, to.logit_row());
    std::copy_n(frame_.report(), shape_.reports(), to.report());
    std::copy_n(frame_.expert_report(), shape_.expert_reports(), to.expert_report());
    model::BatchRows frame{.rows = header.rows,
                           .slot = frame_.slot(),
                           .position = frame_.position(),
                           .logit_rows = header.logit_rows,
                           .logit_row = frame_.logit_row(),
                           .kv_updates = header.kv_updates,
                           .kv_update = frame_.kv_update(),
                           .received = frame_.residual(),
                           .sending = to.residual()};
    if (header.kv_orders > 0 || header.rows == 0) stage_->Order(frame_.kv_orders());
    if (header.rows > 0) stage_->Execute(frame, stage_->separated() ? header.first_half : 0);
    in.EndReceive();
    const uint32_t residual_rows = last ? header.logit_rows : header.rows;
    const uint32_t kv_updates = last ? 0 : header.kv_updates;
    const uint32_t kv_orders = last ? 0 : header.kv_orders;
    to.header().residual_rows = residual_rows;
    to.header().kv_updates = kv_updates;
    to.header().kv_orders = kv_orders;
    std::copy_n(frame_.kv_update(), kv_updates, to.kv_update(residual_rows));
    std::copy_n(frame_.kv_orders().data(), kv_orders, to.kv_order(residual_rows, kv_updates));
    const uint64_t done = CounterNs();
    // Time spent waiting for attention sockets, layer by layer, does not count as this socket's
    // computing.
    const uint64_t inside_ns = std::min(stage_->waited_ns() - waited_ns, done - started);
    SocketStatus::Add(status_.frames_finished, 1);
    status_.live_resident_bytes.store(stage_->packed().live_resident_bytes(),
                                      std::memory_order_relaxed);
    SocketStatus::Add(status_.rows, header.rows);
    SocketStatus::Add(status_.wait_ns, came - before + inside_ns);
    SocketStatus::Add(status_.link_ns, started - came);
    SocketStatus::Add(status_.step_ns, done - started - inside_ns);
    WriteReports(to, done - came);
    out.EndSend(last ? shape_.bytes_from_last(residual_rows)
                     : shape_.bytes(residual_rows, kv_updates, kv_orders));
    before = done;
  }
}

void StageSocket::WriteReports(const StageFrameView<std::byte>& to, uint64_t here_ns) {
  SocketReport* report = to.report() + index_ * shape_.reports_per_stage();
  report[0] = {.counters = LoadCounters(status_), .here_ns = here_ns};
  if (shape_.expert_reports() > 0) WriteExpertReport(to.expert_report()[index_]);
  // A colocated stage has its part of the chunks of all sockets of others; its files count once.
  const KvReport kv = stage_->separated() ? KvReport{} : stage_->kv_report(AttentionId(0));
  if (shape_.rows.slot_ends.empty()) report[0].kv = kv;
  for (AttentionId socket(0); socket.index() < shape_.rows.slot_ends.size(); ++socket) {
    SocketReport& of = report[1 + socket.index()];
    if (stage_->separated()) {
      of = {.counters = LoadCounters(stage_->attention_status(socket)),
            .kv = stage_->kv_report(socket)};
    } else {
      of = {.kv = kv};
      if (socket.index() > 0) of.kv.files = of.kv.bytes = 0;
    }
  }
}

void StageSocket::WriteExpertReport(ExpertReport& report) {
  const weight_node::ExpertCounters& counters = stage_->packed().weights().expert_counters();
  const size_t n = std::min(counters.numbers() - next_expert_number_, std::size(report.numbers));
  report = {.first = static_cast<uint32_t>(next_expert_number_)};
  for (size_t i = 0; i < n; ++i) report.numbers[i] = counters.Number(next_expert_number_ + i);
  next_expert_number_ += n;
  if (next_expert_number_ == counters.numbers()) next_expert_number_ = 0;
}

}  // namespace larder::pipeline::chain
