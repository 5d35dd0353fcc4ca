// The loop of an attention socket: receive a frame's message, execute its attention steps, repeat.
#include <algorithm>

#include "base/clock.h"
#include "model/step/batch_rows.h"
#include "pipeline/stage/attention_socket.h"
#include "sync/copy_once.h"

namespace larder::pipeline::inline stage {

// A message is untrusted, since its sender can write its memory at any time: message_ and rows_ are
// copies that are checked here, once.
const char* AttentionSocket::TakeFrame(const std::byte* message,
                                       model::BatchRows (&parts)[2 * kHalves], uint32_t* rows) {
  const auto max_batch_tokens = static_cast<uint32_t>(plan_.options.capacity.max_batch_tokens);
  if (const char* wrong = message_.WrongHalves(max_batch_tokens)) return wrong;
  if (message_.base_epoch != pool_->next_base_epoch())
    return "a frame of another epoch than expected";
  *rows = 0;
  uint32_t kept = 0;
  for (uint32_t h = 0; h < message_.halves; ++h) {
    const FrameMessage::Half half = message_.half[h];
    model::BatchRows& part = parts[h];
    part.rows = half.rows;
    part.first_row = half.first_row;
    part.slot = rows_.slot() + *rows;
    part.position = rows_.position() + *rows;
    part.logit_rows = half.kept;
    part.logit_row = rows_.kept_row() + kept;
    *rows += half.rows;
    kept += half.kept;
  }
  const auto* sent = reinterpret_cast<const FrameMessage*>(message);
  parts[0].kv_updates = message_.kv_updates;  // each layer's first half makes the copies of both
  parts[0].kv_update = rows_.kv_update();
  if (const char* wrong = rows_.Take({.rows = *rows,
                                      .first_half = message_.halves > 1 ? message_.half[0].rows : 0,
                                      .kept = kept,
                                      .kv_updates = message_.kv_updates,
                                      .slot = sent->slot(),
                                      .position = sent->position(max_batch_tokens),
                                      .kept_row = sent->kept_row(max_batch_tokens),
                                      .kv_update = sent->kv_update(max_batch_tokens)}))
    return wrong;
  kept_rows_.Clear();
  for (uint32_t h = 0; h < message_.halves; ++h) {
    if (const char* wrong = CheckKept(parts[h])) return wrong;
    parts[kHalves + h] = kept_rows_.Take(parts[h], message_.half[h].first_kept);
  }
  return nullptr;
}

const char* AttentionSocket::TakeOrders(const std::byte* message) {
  const char* wrong =
      rows_.Take({.kv_orders = message_.kv_orders,
                  .kv_order = reinterpret_cast<const FrameMessage*>(message)->kv_order()});
  if (wrong == nullptr) kv_part_->Take(rows_.kv_orders());
  return wrong;
}

void AttentionSocket::ReportKv() {
  const KvReport& now = kv_part_->report();
  report_.kv_done.store(now.done, std::memory_order_relaxed);
  report_.kv_failed.store(now.failed, std::memory_order_relaxed);
  report_.kv_files.store(now.files, std::memory_order_relaxed);
  report_.kv_bytes.store(now.bytes, std::memory_order_relaxed);
}

const char* AttentionSocket::Run(SocketStatus& status) {
  for (uint64_t idle_ns = CounterNs();;) {
    if (!frames_.WaitReceive(wait_)) return "a message out of sequence";
    const sync::ReceivedFrame received = frames_.BeginReceive();
    if (!received) return "a message out of sequence";
    const uint64_t start_ns = CounterNs();
    sync::CopyOnce(&message_, received.bytes, sizeof(message_));
    const bool orders = message_.kind == FrameMessage::Kind::kOrders;
    if (const char* wrong = orders ? TakeOrders(received.bytes) : nullptr) {
      SocketStatus::Add(status.wrong_frames, 1);
      return wrong;
    }
    if (message_.kind == FrameMessage::Kind::kAbandon) kv_part_->Abandon();
    if (orders || message_.kind == FrameMessage::Kind::kAbandon ||
        message_.kind == FrameMessage::Kind::kPing) {
      ReportKv();
      report_.pong.Signal(message_.base_epoch, waits_.weight.mode);
      frames_.EndReceive();
      continue;
    }
    SocketStatus::Add(status.wait_ns, start_ns - idle_ns);
    if (message_.kind == FrameMessage::Kind::kStop) {
      SocketStatus::Add(status.frames_started, 1);
      frames_.EndReceive();
      SocketStatus::Add(status.frames_finished, 1);
      return nullptr;
    }
    model::BatchRows batch_parts[2 * kHalves];
    uint32_t rows = 0;
    const char* wrong = message_.kind == FrameMessage::Kind::kRows
                            ? TakeFrame(received.bytes, batch_parts, &rows)
                            : "a message of an unknown kind";
    if (wrong != nullptr) {
      SocketStatus::Add(status.wrong_frames, 1);
      return wrong;
    }
    if (refresh_.Due(message_.base_epoch)) {
      for (sync::EpochFlag* flag : second_half_) flag->Signal(message_.base_epoch);
    }
    base_epoch_.store(message_.base_epoch, std::memory_order_relaxed);
    halves_.store(message_.halves, std::memory_order_relaxed);
    SocketStatus::Add(status.frames_started, 1);
    node_->Map(batch_parts[0]);
    kv_part_->Collect();
    ReportKv();
    void* const parts[] = {&batch_parts[0], &batch_parts[1], &batch_parts[2], &batch_parts[3]};
    const uint64_t waited_ns = pool_->waited_ns();
    pool_->Execute(programs_[message_.halves - 1], parts,
                   static_cast<uint32_t>(plan_.config.layers));
    frames_.EndReceive();
    idle_ns = CounterNs();
    // Time spent waiting for the weight socket, layer by layer, does not count as computing.
    const uint64_t took_ns = idle_ns - start_ns;
    const uint64_t inside_ns = std::min(pool_->waited_ns() - waited_ns, took_ns);
    SocketStatus::Add(status.wait_ns, inside_ns);
    SocketStatus::Add(status.step_ns, took_ns - inside_ns);
    SocketStatus::Add(status.rows, rows);
    SocketStatus::Add(status.frames_finished, 1);
    SocketCounters counters = LoadCounters(status);
    counters.round_trip_ns = report_.round_trip_ns.load(std::memory_order_relaxed);
    StoreCounters(counters, report_.status);
  }
}

}  // namespace larder::pipeline::stage
