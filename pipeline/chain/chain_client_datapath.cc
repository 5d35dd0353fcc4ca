// Frames of the serving socket: sent to the first stage, received from the last.
#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "pipeline/chain/chain_client.h"

namespace larder::pipeline::inline chain {

void ChainClient::Reconnect() {
  if (!connected_) ConnectAgain();
  if (in_.fault()) Lost();
}

void ChainClient::Submit(model::BatchRows& batch, uint32_t first_half) {
  LARDER_CHECK(sent_ - received_ < chain_.capacity.max_in_flight);
  Reconnect();
  in_flight_[sent_ % chain_.capacity.max_in_flight] = {batch.rows, batch.logit_rows, batch.lm_head};
  const StageFrameHeader header{
      .plan_hash = shape_.plan_hash,
      .step = sent_,
      .micro_batch = static_cast<uint32_t>(sent_ % chain_.capacity.max_in_flight),
      .rows = batch.rows,
      .first_half = first_half,
      .logit_rows = batch.logit_rows,
      .residual_rows = batch.rows,
      .kv_updates = batch.kv_updates};
  if (!SendFrame(header, &batch)) Lost();
  ++sent_;
}

void ChainClient::Collect() {
  LARDER_CHECK(received_ < sent_);
  const char* wrong = nullptr;
  if (!ReceiveFrame(&wrong)) {
    if (wrong == nullptr) Lost();
    WrongFrame(wrong);
  }
  ++received_;
}

void ChainClient::Poll() {
  LARDER_CHECK(sent_ == received_);
  Reconnect();
  in_flight_[sent_ % chain_.capacity.max_in_flight] = {};
  const StageFrameHeader header{
      .kind = StageFrameHeader::Kind::kOrders,
      .plan_hash = shape_.plan_hash,
      .step = sent_,
      .micro_batch = static_cast<uint32_t>(sent_ % chain_.capacity.max_in_flight)};
  if (!SendFrame(header, nullptr)) Lost();
  ++sent_;
  Collect();
}

bool ChainClient::SendFrame(StageFrameHeader header, model::BatchRows* batch) {
  const uint64_t before = CounterNs();
  {
    const Pulse::Rest rest(status_.pulse);
    if (!out_.WaitSend(wait_)) return false;
  }
  const sync::SendSlot slot = out_.BeginSend();
  if (!slot) return false;
  const uint64_t started = CounterNs();
  const StageFrameView<std::byte> view(slot.bytes, shape_);
  view.header() = header;
  std::fill_n(view.report(), shape_.reports(), SocketReport{});
  std::fill_n(view.expert_report(), shape_.expert_reports(), ExpertReport{});
  if (header.kind != StageFrameHeader::Kind::kStop) {
    SocketStatus::Add(status_.frames_started, 1);
    if (orders_.waits()) {
      const uint32_t rows = header.residual_rows, updates = header.kv_updates;
      view.header().kv_orders = header.kv_orders =
          static_cast<uint32_t>(orders_.Send(sent_, view.kv_order(rows, updates)));
    }
  }
  if (batch != nullptr) {
    std::copy_n(batch->slot, batch->rows, view.slot());
    std::copy_n(batch->position, batch->rows, view.position());
    std::copy_n(batch->logit_row, batch->logit_rows, view.logit_row());
    std::copy_n(batch->kv_update, batch->kv_updates, view.kv_update(batch->rows));
    batch->sending = view.residual();
    ends_.Embed(*batch);
  }
  out_.EndSend(shape_.bytes(header.residual_rows, header.kv_updates, header.kv_orders));
  SocketStatus::Add(status_.link_ns, started - before);
  const uint64_t left = CounterNs();
  SocketStatus::Add(status_.step_ns, left - started);
  alone_since_ns_ = sent_ == received_ ? left : 0;
  return true;
}

// Stores the stages' reports and, if the frame was alone in the chain, the links' round trip: the
// frame's time minus its time in the stages.
void ChainClient::ShowReports(const SocketReport* reports, uint64_t came_ns) {
  uint64_t stages_ns = 0;
  for (size_t i = 0; i < shape_.reports(); ++i) {
    StoreCounters(reports[i].counters, shown_[i]);
    stages_ns += reports[i].here_ns;
  }
  if (alone_since_ns_ != 0 && sent_ == received_ + 1 && came_ns > alone_since_ns_ + stages_ns)
    status_.round_trip_ns.store(came_ns - alone_since_ns_ - stages_ns, std::memory_order_relaxed);
}

void ChainClient::ShowExperts(const ExpertReport* reports) {
  for (size_t stage = 0; stage < shape_.expert_reports(); ++stage) {
    const size_t first = reports[stage].first;
    for (size_t i = 0; i < std::size(reports[stage].numbers); ++i) {
      if (first + i >= experts_[stage].numbers()) break;
      experts_[stage].SetNumber(first + i, reports[stage].numbers[i]);
    }
  }
}

// Notes which orders the sockets report ended.
void ChainClient::SeeOrders() {
  const size_t per_stage = shape_.reports_per_stage();
  for (size_t socket = 0; socket < std::max<size_t>(chain_.slot_ends.size(), 1); ++socket) {
    const size_t at = shape_.rows.slot_ends.empty() ? 0 : 1 + socket;
    for (size_t stage = 0; stage < of_stages_.size(); ++stage)
      of_stages_[stage] = frame_.report()[stage * per_stage + at].kv;
    orders_.See(received_, AttentionId(static_cast<int32_t>(socket)), of_stages_);
  }
}

bool ChainClient::ReceiveFrame(const char** wrong) {
  const uint64_t before = CounterNs();
  {
    const Pulse::Rest rest(status_.pulse);  // the stages have to finish the frames in flight
    if (!in_.WaitReceive(wait_)) return false;
  }
  const sync::ReceivedFrame received = in_.BeginReceive();
  if (!received) return false;
  const uint64_t came = CounterNs();
  *wrong = frame_.Take({received.bytes, received.size_bytes}, received_, true);
  if (*wrong != nullptr) return false;
  const StageFrameHeader& header = frame_.header();
  const InFlight& expected = in_flight_[received_ % chain_.capacity.max_in_flight];
  const auto kind =
      expected.rows > 0 ? StageFrameHeader::Kind::kRows : StageFrameHeader::Kind::kOrders;
  if (header.kind != kind || header.rows != expected.rows ||
      header.logit_rows != expected.logit_rows) {
    *wrong = "not the rows that were sent";
    return false;
  }
  ShowReports(frame_.report(), came);
  ShowExperts(frame_.expert_report());
  SeeOrders();
  if (header.logit_rows > 0) {
    model::BatchRows batch{.rows = header.logit_rows,
                           .logit_rows = header.logit_rows,
                           .logit_row = logit_row_.data(),
                           .lm_head = expected.lm_head,
                           .received = frame_.residual()};
    ends_.Head(batch);
    status_.live_resident_bytes.store(ends_.packed().live_resident_bytes(),
                                      std::memory_order_relaxed);
  }
  in_.EndReceive();
  SocketStatus::Add(status_.frames_finished, 1);
  SocketStatus::Add(status_.rows, header.rows);
  SocketStatus::Add(status_.wait_ns, came - before);
  SocketStatus::Add(status_.step_ns, CounterNs() - came);
  return true;
}

}  // namespace larder::pipeline::chain
