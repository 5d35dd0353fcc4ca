// What the threads of an AttentionLink do for each micro-batch.
#include <algorithm>
#include <cstring>

#include "pipeline/stage/attention_link.h"
#include "sync/copy_once.h"

namespace larder::pipeline::inline stage {

template <typename Project, typename Attend>
bool AttentionLink::Walk(Project project, Attend attend) {
  const size_t layers = plan_.config.layers, halves = message_.halves;
  for (size_t half = 0; half < halves; ++half) {
    if (!project(0, half)) return false;
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    for (size_t half = 0; half < halves; ++half) {
      if (!attend(layer, half)) return false;
      if (layer + 1 < layers && !project(layer + 1, half)) return false;
    }
  }
  return true;
}

AttentionLink::Rows AttentionLink::RowsOf(size_t layer, size_t half) const {
  const FrameMessage::Half& of = message_.half[half];
  return layer > plan_.config.last_storing() ? Rows{of.first_kept, of.kept}
                                             : Rows{of.first_row, of.rows};
}

size_t AttentionLink::Heads(size_t layer) const {
  return columns_[plan_.config.KindOf(layer)].size();
}

Range<size_t> AttentionLink::Columns(size_t layer, size_t first, size_t count) const {
  const auto& of_heads = columns_[plan_.config.KindOf(layer)];
  return {of_heads[first].begin, of_heads[first + count - 1].end};
}

std::span<sync::EpochFlag* const> AttentionLink::Projected(size_t layer, size_t half,
                                                           size_t head) const {
  return projected_[half][plan_.config.KindOf(layer)][head];
}

void AttentionLink::SignalProjected(size_t layer, size_t half, size_t head,
                                    sync::WaitPolicy::Mode waiters) {
  for (sync::EpochFlag* const flag : Projected(layer, half, head))
    flag->Signal(Epoch(layer), waiters);
}

void AttentionLink::SignalAttended(size_t layer, size_t half, sync::WaitPolicy::Mode waiters) {
  for (sync::EpochFlag* const flag : attended_[half]) flag->Signal(Epoch(layer), waiters);
}

bool AttentionLink::Send(const LinkFrame& frame, const void* bytes, size_t size_bytes) {
  if (!out_.WaitSend(wait_)) return false;
  const sync::SendSlot slot = out_.BeginSend();
  if (!slot) return false;
  std::memcpy(slot.bytes, &frame, sizeof(frame));
  std::memcpy(slot.bytes + sizeof(frame), bytes, size_bytes);
  out_.EndSend(sizeof(frame) + size_bytes);
  return true;
}

bool AttentionLink::SendRows(LinkFrame frame, const weight_node::FloatRows& from,
                             Range<size_t> columns, Rows rows) {
  const size_t row_bytes = columns.count() * sizeof(float);
  const auto most = static_cast<uint32_t>(payload_bytes_ / row_bytes);
  for (uint32_t row = 0; row < rows.count; row += frame.rows) {
    if (!out_.WaitSend(wait_)) return false;
    const sync::SendSlot slot = out_.BeginSend();
    if (!slot) return false;
    frame.first_row = row;
    frame.rows = std::min(most, rows.count - row);
    std::memcpy(slot.bytes, &frame, sizeof(frame));
    std::byte* to = slot.bytes + sizeof(frame);
    for (uint32_t m = 0; m < frame.rows; ++m, to += row_bytes)
      std::memcpy(to, from.row(rows.first + row + m) + columns.begin, row_bytes);
    out_.EndSend(sizeof(frame) + frame.rows * row_bytes);
  }
  return true;
}

const std::byte* AttentionLink::Receive(LinkFrame* frame, size_t* size_bytes) {
  if (!in_.WaitReceive(wait_)) return nullptr;
  const sync::ReceivedFrame received = in_.BeginReceive();
  if (!received) return nullptr;
  if (received.size_bytes < sizeof(*frame)) {
    Wrong("a frame without a header");
    return nullptr;
  }
  sync::CopyOnce(frame, received.bytes, sizeof(*frame));
  *size_bytes = received.size_bytes - sizeof(*frame);
  return received.bytes + sizeof(*frame);
}

bool AttentionLink::Take(const LinkFrame& frame, const std::byte* bytes, size_t size_bytes,
                         const weight_node::FloatRows& to, Range<size_t> columns, Rows rows) {
  const size_t row_bytes = columns.count() * sizeof(float);
  if (frame.rows == 0 || frame.first_row > rows.count ||
      frame.rows > rows.count - frame.first_row || size_bytes != frame.rows * row_bytes)
    return false;
  for (uint32_t m = 0; m < frame.rows; ++m, bytes += row_bytes)
    std::memcpy(to.row(rows.first + frame.first_row + m) + columns.begin, bytes, row_bytes);
  return true;
}

bool AttentionLink::Wrong(const char* what) {
  wrong_ = what;
  in_.Fail(sync::FaultCode::kMalformed, static_cast<uint32_t>(index_.index()));
  out_.Fail(sync::FaultCode::kMalformed, static_cast<uint32_t>(index_.index()));
  return false;
}

bool AttentionLink::Keep(const std::byte* message, size_t size_bytes) {
  if (size_bytes != message_bytes_) return Wrong("a message of another size");
  sync::CopyOnce(&message_, message, sizeof(message_));
  if (message_.kind == FrameMessage::Kind::kRows) {
    if (const char* wrong = message_.WrongHalves(plan_.options.capacity.max_batch_tokens))
      return Wrong(wrong);
  }
  return true;
}

// ---- the weight socket's end

void WeightEnd::Run() {
  for (;;) {
    if (!messages_->WaitReceive(wait_)) return;
    const sync::ReceivedFrame received = messages_->BeginReceive();
    if (!received || !Keep(received.bytes, received.size_bytes)) return;
    // Of a micro-batch without rows, for which nothing else was waited for.
    if (!reported_ && !TakeAnswer(LinkFrame::Kind::kReport)) return;
    const FrameMessage::Kind kind = message_.kind;
    if (kind == FrameMessage::Kind::kRows && refresh_.Due(message_.base_epoch)) {
      for (sync::EpochFlag* const flag : Attended(1)) flag->Signal(message_.base_epoch);
    }
    const bool sent =
        Send({.kind = LinkFrame::Kind::kMessage}, received.bytes, received.size_bytes);
    messages_->EndReceive();
    if (!sent) return;
    if (kind == FrameMessage::Kind::kRows) {
      reported_ = false;
      if (!Walk([this](size_t layer, size_t half) { return Project(layer, half); },
                [this](size_t layer, size_t half) { return Attend(layer, half); }))
        return;
      continue;
    }
    if (!TakeAnswer(LinkFrame::Kind::kAnswer) || kind == FrameMessage::Kind::kStop) return;
    report_.pong.Signal(message_.base_epoch, weight_mode_);
  }
}

// Sends heads as they become ready, whichever comes first.
bool WeightEnd::Project(size_t layer, size_t half) {
  const size_t heads = Heads(layer);
  const Rows rows = RowsOf(layer, half);
  if (rows.count == 0) return true;
  const uint32_t epoch = Epoch(layer);
  const auto ready = [&](size_t head) {
    return done_[head] == 0 &&
           std::ranges::all_of(Projected(layer, half, head), [epoch](const sync::EpochFlag* flag) {
             return flag->Reached(epoch);
           });
  };
  std::fill_n(done_.begin(), heads, 0);
  for (size_t sent = 0; sent < heads;) {
    size_t first = 0;
    while (first < heads && !ready(first)) ++first;
    if (first == heads) {
      first = static_cast<size_t>(
          std::find(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(heads), 0u) -
          done_.begin());
      for (sync::EpochFlag* const flag : Projected(layer, half, first)) flag->Wait(epoch, wait_);
    }
    size_t count = 1;
    const auto fits = [&](size_t n) {
      return Columns(layer, first, n).count() * rows.count * sizeof(float) <= payload_bytes_;
    };
    while (first + count < heads && fits(count + 1) && ready(first + count)) ++count;
    const LinkFrame frame{.kind = LinkFrame::Kind::kHeads,
                          .layer = static_cast<uint32_t>(layer),
                          .half = static_cast<uint32_t>(half),
                          .first_head = static_cast<uint32_t>(first),
                          .heads = static_cast<uint32_t>(count)};
    if (!SendRows(frame, exchange_.rows().qkv, Columns(layer, first, count), rows)) return false;
    std::fill_n(done_.begin() + static_cast<std::ptrdiff_t>(first), count, rows.count);
    sent += count;
  }
  return true;
}

bool WeightEnd::Attend(size_t layer, size_t half) {
  if (Heads(layer) == 0) return true;
  const Rows rows = RowsOf(layer, half);
  const Range<size_t> columns{0, plan_.config.layer(layer).attended_size()};
  if (rows.count > 0 && layer == last_attending_ && half + 1 == message_.halves &&
      !TakeAnswer(LinkFrame::Kind::kReport))
    return false;
  for (uint32_t done = 0; done < rows.count;) {
    LinkFrame frame;
    size_t size_bytes = 0;
    const std::byte* const bytes = Receive(&frame, &size_bytes);
    if (bytes == nullptr) return false;
    if (frame.kind != LinkFrame::Kind::kAttended || frame.layer != layer || frame.half != half ||
        frame.first_row != done ||
        !Take(frame, bytes, size_bytes, exchange_.rows().attn, columns, rows))
      return Wrong("rows that are not the next ones");
    in_.EndReceive();
    done += frame.rows;
  }
  SignalAttended(layer, half, weight_mode_);
  return true;
}

bool WeightEnd::TakeAnswer(LinkFrame::Kind kind) {
  LinkFrame frame;
  LinkFrame::Answer answer;
  size_t size_bytes = 0;
  const std::byte* const bytes = Receive(&frame, &size_bytes);
  if (bytes == nullptr) return false;
  if (frame.kind != kind || size_bytes != sizeof(answer))
    return Wrong("something else than an answer to a message");
  sync::CopyOnce(&answer, bytes, sizeof(answer));
  in_.EndReceive();
  reported_ = true;
  report_.kv_done.store(answer.kv.done, std::memory_order_relaxed);
  report_.kv_failed.store(answer.kv.failed, std::memory_order_relaxed);
  report_.kv_files.store(answer.kv.files, std::memory_order_relaxed);
  report_.kv_bytes.store(answer.kv.bytes, std::memory_order_relaxed);
  answer.counters.round_trip_ns = report_.round_trip_ns.load(std::memory_order_relaxed);
  StoreCounters(answer.counters, report_.status);
  return true;
}

// ---- the attention socket's end

void AttentionEnd::Run() {
  for (;;) {
    if (!TakeMessage()) break;
    if (message_.kind == FrameMessage::Kind::kRows) {
      if (!Walk([this](size_t layer, size_t half) { return Project(layer, half); },
                [this](size_t layer, size_t half) { return Attend(layer, half); }))
        break;
      continue;
    }
    if (message_.kind != FrameMessage::Kind::kStop) report_.pong.Wait(message_.base_epoch, wait_);
    if (!SendAnswer(LinkFrame::Kind::kAnswer) || message_.kind == FrameMessage::Kind::kStop) break;
  }
  // The socket may be in the middle of a micro-batch, and goes on without the rows that are
  // missing: what it has is of a conversation that will be computed again.
  if (message_.kind != FrameMessage::Kind::kStop) Release();
}

// Hands the next message to the socket, in a copy that the other end cannot write.
bool AttentionEnd::TakeMessage() {
  LinkFrame frame;
  size_t size_bytes = 0;
  const std::byte* const bytes = Receive(&frame, &size_bytes);
  if (bytes == nullptr) return false;
  if (frame.kind != LinkFrame::Kind::kMessage) return Wrong("rows where a message was expected");
  if (size_bytes != message_bytes_) return Wrong("a message of another size");
  if (!messages_->WaitSend(wait_)) return false;
  const sync::SendSlot slot = messages_->BeginSend();
  if (!slot) return false;
  sync::CopyOnce(slot.bytes, bytes, size_bytes);
  in_.EndReceive();
  if (!Keep(slot.bytes, size_bytes)) return false;
  const bool rows = message_.kind == FrameMessage::Kind::kRows;
  last_epoch_.store(message_.base_epoch + (rows ? static_cast<uint32_t>(plan_.config.layers) : 0));
  if (stopped_.load()) return false;
  if (rows && refresh_.Due(message_.base_epoch)) {
    for (const auto& of_kind : projected_[1]) {
      for (const auto& of_head : of_kind) {
        for (sync::EpochFlag* const flag : of_head) flag->Signal(message_.base_epoch);
      }
    }
  }
  messages_->EndSend(size_bytes);
  return true;
}

bool AttentionEnd::Project(size_t layer, size_t half) {
  const size_t heads = Heads(layer);
  const Rows rows = RowsOf(layer, half);
  std::fill_n(done_.begin(), heads, 0);
  if (rows.count == 0) {
    for (size_t head = 0; head < heads; ++head) SignalProjected(layer, half, head, attention_mode_);
    return true;
  }
  for (size_t whole = 0; whole < heads;) {
    LinkFrame frame;
    size_t size_bytes = 0;
    const std::byte* const bytes = Receive(&frame, &size_bytes);
    if (bytes == nullptr) return false;
    if (frame.kind != LinkFrame::Kind::kHeads || frame.layer != layer || frame.half != half ||
        frame.heads == 0 || frame.first_head >= heads || frame.heads > heads - frame.first_head)
      return Wrong("heads that are not the next ones");
    const Range<size_t> of{frame.first_head, frame.first_head + frame.heads};
    for (size_t head = of.begin; head < of.end; ++head) {
      if (done_[head] != frame.first_row) return Wrong("rows of a head that are not the next ones");
    }
    if (!Take(frame, bytes, size_bytes, exchange_.rows().qkv,
              Columns(layer, frame.first_head, frame.heads), rows))
      return Wrong("rows of another size");
    in_.EndReceive();
    for (size_t head = of.begin; head < of.end; ++head) {
      done_[head] += frame.rows;
      if (done_[head] < rows.count) continue;
      SignalProjected(layer, half, head, attention_mode_);
      ++whole;
    }
  }
  return true;
}

bool AttentionEnd::Attend(size_t layer, size_t half) {
  if (Heads(layer) == 0) return true;
  for (sync::EpochFlag* const flag : Attended(half)) flag->Wait(Epoch(layer), wait_);
  // Before the rows: the weight socket reads the report as soon as it has these.
  if (layer == last_attending_ && half + 1 == message_.halves &&
      !SendAnswer(LinkFrame::Kind::kReport))
    return false;
  const LinkFrame frame{.kind = LinkFrame::Kind::kAttended,
                        .layer = static_cast<uint32_t>(layer),
                        .half = static_cast<uint32_t>(half)};
  return SendRows(frame, exchange_.rows().attn, {0, plan_.config.layer(layer).attended_size()},
                  RowsOf(layer, half));
}

bool AttentionEnd::SendAnswer(LinkFrame::Kind kind) {
  const LinkFrame::Answer answer{.kv = {.done = report_.kv_done.load(std::memory_order_relaxed),
                                        .failed = report_.kv_failed.load(std::memory_order_relaxed),
                                        .files = report_.kv_files.load(std::memory_order_relaxed),
                                        .bytes = report_.kv_bytes.load(std::memory_order_relaxed)},
                                 .counters = LoadCounters(report_.status)};
  return Send({.kind = kind}, &answer, sizeof(answer));
}

void AttentionEnd::Release() {
  messages_->Fail(sync::FaultCode::kLinkDown);
  if (message_.kind != FrameMessage::Kind::kRows) return;
  for (size_t half = 0; half < kHalves; ++half) {
    for (const auto& of_kind : projected_[half]) {
      for (const auto& of_head : of_kind) {
        for (sync::EpochFlag* const flag : of_head)
          flag->Signal(last_epoch_.load(std::memory_order_relaxed));
      }
    }
  }
}

void AttentionEnd::Stop() {
  stopped_.store(true);
  in_.Fail(sync::FaultCode::kInternal);
  out_.Fail(sync::FaultCode::kInternal);
  const uint32_t epoch = last_epoch_.load();
  for (size_t half = 0; half < kHalves; ++half) {
    for (sync::EpochFlag* const flag : Attended(half)) flag->Signal(epoch);
  }
  report_.pong.Signal(epoch);
}

}  // namespace larder::pipeline::stage
