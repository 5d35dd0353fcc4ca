#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "pipeline/stage/attention_client.h"

namespace larder::pipeline::inline stage {

constexpr uint32_t kPingEvery = 256;  // frames; a ping costs some microseconds in half a second

FrameMessage& AttentionClient::BeginMessage(AttentionId socket, FrameMessage::Kind kind,
                                            uint32_t base_epoch) {
  rdma::ShmLink& link = *senders_[socket.index()];
  if (!link.WaitSend({})) LinkFailed(socket);
  const sync::SendSlot slot = link.BeginSend();
  if (!slot) LinkFailed(socket);
  auto& message = *reinterpret_cast<FrameMessage*>(slot.bytes);
  message = FrameMessage{
      .kind = kind, .base_epoch = base_epoch, .halves = 1, .kv_updates = 0, .half = {}};
  return message;
}

void AttentionClient::Call(AttentionId socket, FrameMessage::Kind kind,
                           std::span<const KvOrder> orders) {
  pinged_.store(socket, std::memory_order_relaxed);
  FrameMessage& message = BeginMessage(socket, kind, pings_);
  const PlanAttentionSocket& planned = plan_.attention[socket.index()];
  const Range<size_t> chunks{planned.first_chunk, planned.first_chunk + planned.kv_chunks};
  for (KvOrder order : orders) {
    if (!chunks.contains(order.chunk)) continue;
    order.chunk -= static_cast<uint32_t>(planned.first_chunk);
    message.kv_order()[message.kv_orders++] = order;
  }
  senders_[socket.index()]->EndSend();
  report(socket).pong.Wait(pings_, wait_);
  pinged_.store(AttentionId(), std::memory_order_relaxed);
}

// A round trip to the socket's thread 0, which wakes it if it sleeps, as a frame does.
void AttentionClient::Ping(AttentionId socket) {
  const uint64_t begin = CounterNs();
  Call(socket, FrameMessage::Kind::kPing);
  report(socket).round_trip_ns.store(CounterNs() - begin, std::memory_order_relaxed);
}

void AttentionClient::Order(std::span<const KvOrder> orders) {
  ++pings_;
  for (AttentionId socket(0); socket.index() < plan_.attention.size(); ++socket)
    Call(socket, FrameMessage::Kind::kOrders, orders);
}

void AttentionClient::AbandonOrders() {
  ++pings_;
  for (AttentionId socket(0); socket.index() < plan_.attention.size(); ++socket)
    Call(socket, FrameMessage::Kind::kAbandon);
}

KvReport AttentionClient::kv_report(AttentionId socket) const {
  const AttentionReport& of = report(socket);
  return {.done = of.kv_done.load(std::memory_order_relaxed),
          .failed = of.kv_failed.load(std::memory_order_relaxed),
          .files = of.kv_files.load(std::memory_order_relaxed),
          .bytes = of.kv_bytes.load(std::memory_order_relaxed)};
}

void AttentionClient::Send(const model::BatchRows& frame, uint32_t first_half,
                           uint32_t base_epoch) {
  // The first frame has no ping, since it has to wake sockets that have just started.
  if (frames_++ % kPingEvery == 1) {
    ++pings_;
    for (AttentionId socket(0); socket.index() < plan_.attention.size(); ++socket) Ping(socket);
  }
  const size_t max_batch_tokens = plan_.options.capacity.max_batch_tokens;
  const uint32_t halves = first_half == 0 ? 1 : 2;
  base_epoch_.store(base_epoch, std::memory_order_relaxed);
  halves_.store(halves, std::memory_order_relaxed);
  const uint32_t ends[kHalves] = {halves == 1 ? frame.rows : first_half, frame.rows};
  uint32_t next[kHalves] = {0, first_half};  // [half]: the first row that has no socket yet
  uint32_t next_kept[kHalves] = {0, 0};      // [half]: kept rows that have one
  for (AttentionId socket(0); socket.index() < plan_.attention.size(); ++socket) {
    FrameMessage& message = BeginMessage(socket, FrameMessage::Kind::kRows, base_epoch);
    message.halves = halves;
    const SlotId first_slot = plan_.attention[socket.index()].first_slot;
    const SlotId end_slot = plan_.attention[socket.index()].end_slot();
    const auto first_chunk = static_cast<uint32_t>(plan_.attention[socket.index()].first_chunk);
    uint32_t rows = 0, kept_rows = 0;
    for (uint32_t h = 0; h < halves; ++h) {
      uint32_t& row = next[h];
      const uint32_t first_row = row;
      for (; row < ends[h] && frame.slot[row] < end_slot; ++row, ++rows) {
        message.slot()[rows] = SlotId(frame.slot[row].value - first_slot.value);
        message.position(max_batch_tokens)[rows] = frame.position[row];
      }
      const auto* const kept =
          std::lower_bound(frame.logit_row, frame.logit_row + frame.logit_rows, first_row);
      const auto* const end = std::lower_bound(kept, frame.logit_row + frame.logit_rows, row);
      const auto count = static_cast<uint32_t>(end - kept);
      std::copy_n(kept, count, message.kept_row(max_batch_tokens) + kept_rows);
      kept_rows += count;
      message.half[h] = {.rows = row - first_row,
                         .first_row = first_row,
                         .kept = count,
                         .first_kept = (h == 0 ? 0 : first_half) + next_kept[h]};
      next_kept[h] += count;
    }
    for (uint32_t i = 0; i < frame.kv_updates; ++i) {
      model::KvUpdate update = frame.kv_update[i];
      if (update.slot < first_slot || update.slot >= end_slot) continue;
      update.slot = SlotId(update.slot.value - first_slot.value);
      update.chunk -= first_chunk;
      if (update.copied_positions > 0) update.copied_from -= first_chunk;
      message.kv_update(max_batch_tokens)[message.kv_updates++] = update;
    }
    senders_[socket.index()]->EndSend();
  }
  LARDER_CHECK(next[0] == ends[0] && (halves == 1 || next[1] == ends[1]),
               "rows of attention sockets are not in order");
}

}  // namespace larder::pipeline::stage
