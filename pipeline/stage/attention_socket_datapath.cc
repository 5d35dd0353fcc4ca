// The loop of an attention socket: receive a frame's message, execute its attention steps, repeat.
#include <algorithm>

#include "base/clock.h"
#include "model/step/batch_rows.h"
#include "pipeline/stage/attention_socket.h"
#include "sync/copy_once.h"

namespace larder::pipeline::inline stage {

// A message is untrusted, since its sender can write its memory at any time. What is used as an
// index is copied and checked here, once.
const char* AttentionSocket::TakeFrame(const std::byte* message,
                                       model::BatchRows (&halves)[kHalves], uint32_t* rows) {
  if (message_.halves != 1 && message_.halves != kHalves)
    return "a frame of an impossible number of halves";
  if (message_.base_epoch != pool_->next_base_epoch())
    return "a frame of another epoch than expected";
  const auto max_batch_tokens = static_cast<uint32_t>(plan_.options.max_batch_tokens);
  *rows = 0;
  for (uint32_t h = 0; h < message_.halves; ++h) {
    const FrameMessage::Half half = message_.half[h];
    if (half.rows > max_batch_tokens - *rows || half.first_row > max_batch_tokens - half.rows)
      return "a frame of more rows than there is room for";
    halves[h].rows = half.rows;
    halves[h].first_row = half.first_row;
    halves[h].slot = slot_.data() + *rows;
    halves[h].position = position_.data() + *rows;
    *rows += half.rows;
  }
  const auto* sent = reinterpret_cast<const FrameMessage*>(message);
  sync::CopyOnce(slot_.data(), sent->slot(), *rows * sizeof(SlotId));
  sync::CopyOnce(position_.data(), sent->position(max_batch_tokens), *rows * sizeof(uint32_t));
  const uint32_t updates = message_.kv_updates;
  if (updates > kv_update_.size()) return "more changes to the KV table than there is room for";
  sync::CopyOnce(kv_update_.data(), sent->kv_update(max_batch_tokens),
                 updates * sizeof(model::KvUpdate));
  for (uint32_t i = 0; i < updates; ++i) {
    if (const char* wrong = node_->kv().Check(kv_update_[i])) return wrong;
  }
  halves[0].kv_updates = updates;  // each layer's first half makes the copies of both
  halves[0].kv_update = kv_update_.data();
  const attention_node::KvShape& kv = node_->kv().shape();
  for (uint32_t m = 0; m < *rows; ++m) {
    if (slot_[m].index() >= kv.slots) return "a slot that does not exist";
    if (position_[m] >= kv.context) return "a position beyond the context";
    // An attention step treats adjacent rows of one slot as one tile and reads only the first row's
    // position.
    const bool first = m == 0 || (message_.halves > 1 && m == message_.half[0].rows);
    if (!first && slot_[m] == slot_[m - 1] && position_[m] != position_[m - 1] + 1)
      return "a gap in the positions of a slot";
  }
  return nullptr;
}

// The message's KV orders. The weight socket's process can write the message at any time, so the
// orders are copied once, the copies are checked, and only the copies are used.
const char* AttentionSocket::TakeOrders(const std::byte* message) {
  const uint32_t orders = message_.kv_updates;
  if (orders > kv_order_.size()) return "more KV orders than there is room for";
  sync::CopyOnce(kv_order_.data(), reinterpret_cast<const FrameMessage*>(message)->kv_order(),
                 orders * sizeof(KvOrder));
  const Range<size_t> chunks{0, plan_.attention[index_.index()].kv_chunks};
  for (uint32_t i = 0; i < orders; ++i) {
    if (const char* wrong = kv_order_[i].Problem(chunks)) return wrong;
  }
  kv_part_->Take({kv_order_.data(), orders});
  return nullptr;
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
    model::BatchRows halves[kHalves];
    uint32_t rows = 0;
    const char* wrong = message_.kind == FrameMessage::Kind::kRows
                            ? TakeFrame(received.bytes, halves, &rows)
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
    node_->Map(halves[0]);
    kv_part_->Collect();
    ReportKv();
    void* const parts[] = {&halves[0], &halves[1]};
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
