// A TcpLink's frames: sending, receiving, credits, waiting. The system calls are the transport
// here.
#include <poll.h>
#include <sys/eventfd.h>  // datapath-ok: the helper is called by an eventfd
#include <sys/socket.h>   // datapath-ok: TCP

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "rdma/tcp/tcp_link.h"

namespace larder::rdma::inline tcp {

using sync::FaultCode;

// ---- sender

sync::SendSlot TcpLink::BeginSend() {
  LARDER_CHECK(side_ == LinkSide::kSend, "a receiver does not send");
  if (fault_.raised()) return {};
  if (position_ - other_ >= shape_.slots) {
    ReadCredits();
    if (position_ - other_ >= shape_.slots || fault_.raised()) return {};
  }
  return {Slot(slot_) + kFrameOffset, position_};
}

void TcpLink::EndSend(size_t size_bytes) {
  Header header;
  header.sequence = position_;
  header.size_bytes =
      static_cast<uint32_t>(size_bytes < shape_.frame_bytes ? size_bytes : shape_.frame_bytes);
  std::memcpy(Slot(slot_) + kHeaderOffset, &header, sizeof(header));
  slot_ = slot_ + 1 == shape_.slots ? 0 : slot_ + 1;
  ++position_;
  // seq_cst, here and in Flush(): of two threads that may write, at least one sees the other (see
  // sync/wait.h)
  queued_.store(queued_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  Flush();
}

// Writes what is queued, unless the other thread is writing; that thread reads queued_ again after
// it lets go.
void TcpLink::Flush() {
  while (!writing_.exchange(true, std::memory_order_seq_cst)) {
    if (!WriteQueued()) {             // full: the helper thread owns the writing from here on
      eventfd_write(help_.get(), 1);  // datapath-ok: only when the connection is full
      return;
    }
    const uint32_t written = written_;
    writing_.store(false, std::memory_order_seq_cst);
    if (queued_.load(std::memory_order_seq_cst) == written || fault_.raised()) return;
  }
}

// Called only by the owner of writing_. Returns false if the connection takes no more bytes for
// now.
bool TcpLink::WriteQueued() {
  // acquire: pairs with EndSend()'s store; the frames' bytes are visible
  while (written_ != queued_.load(std::memory_order_acquire) && !fault_.raised()) {
    const std::byte* start = Slot(written_slot_) + kHeaderOffset;
    Header header;
    std::memcpy(&header, start, sizeof(header));
    const size_t total_bytes = sizeof(header) + header.size_bytes;
    // datapath-ok: the transport
    const ssize_t sent = send(connection_.get(), start + written_bytes_,
                              total_bytes - written_bytes_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return false;
      fault_.Raise(errno == EPIPE || errno == ECONNRESET ? LinkDown::kClosed : LinkDown::kNetwork);
      return true;
    }
    written_bytes_ += static_cast<size_t>(sent);
    if (written_bytes_ < total_bytes) continue;
    written_bytes_ = 0;
    written_slot_ = written_slot_ + 1 == shape_.slots ? 0 : written_slot_ + 1;
    ++written_;
  }
  return true;
}

// A credit is the number of frames released so far. This reads all that have arrived; each replaces
// the one before.
void TcpLink::ReadCredits() {
  for (;;) {
    std::byte* next = reinterpret_cast<std::byte*>(&credit_) + credit_bytes_;
    const size_t ask_bytes = sizeof(credit_) - credit_bytes_;
    // datapath-ok: the transport
    const ssize_t received = recv(connection_.get(), next, ask_bytes, MSG_DONTWAIT);
    if (received <= 0) {
      if (received == 0) fault_.Raise(LinkDown::kClosed);
      if (received < 0 && errno == EINTR) continue;
      if (received < 0 && errno != EAGAIN) fault_.Raise(LinkDown::kNetwork);
      return;
    }
    credit_bytes_ += static_cast<size_t>(received);
    if (credit_bytes_ < sizeof(credit_)) continue;
    credit_bytes_ = 0;
    // it must move forward, and not beyond what was sent
    if (credit_ - other_ == 0 || credit_ - other_ > position_ - other_) {
      fault_.Raise(FaultCode::kMalformed, credit_);
      return;
    }
    other_ = credit_;
  }
}

// ---- receiver

sync::ReceivedFrame TcpLink::BeginReceive() {
  LARDER_CHECK(side_ == LinkSide::kReceive, "a sender does not receive");
  if (fault_.raised()) return {};
  if (!complete_) {
    ReadFrame();
    if (!complete_ && position_ - other_ >= CreditBatch(shape_.slots)) ReturnCredits();
    if (!complete_ || fault_.raised()) return {};
  }
  const std::byte* slot = Slot(slot_);
  Header header;
  std::memcpy(&header, slot + kHeaderOffset, sizeof(header));
  return {slot + kFrameOffset, position_, header.size_bytes};
}

void TcpLink::EndReceive() {
  if (!complete_) return;  // a fault came while the frame was read
  const size_t total_bytes = usual_bytes_;
  const size_t next_bytes = have_bytes_ - total_bytes;
  std::byte* next = Slot(1 - slot_);
  if (next_bytes > 0)
    std::memcpy(next + kHeaderOffset, Slot(slot_) + kHeaderOffset + total_bytes, next_bytes);
  have_bytes_ = next_bytes;
  complete_ = false;
  slot_ = 1 - slot_;
  ++position_;
  if (position_ - other_ >= CreditLimit(shape_.slots)) ReturnCredits();
}

void TcpLink::ReturnCredits() {
  // Four bytes always fit, unless the sender has left about 10^5 credits unread. Then the next
  // EndReceive() tries again.
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  // datapath-ok: the transport
  const ssize_t sent = send(connection_.get(), &position_, sizeof(position_), kFlags);
  if (sent == sizeof(position_)) {
    other_ = position_;
  } else if (sent >= 0 || (errno != EAGAIN && errno != EINTR)) {
    fault_.Raise(sent < 0 && (errno == EPIPE || errno == ECONNRESET) ? LinkDown::kClosed
                                                                     : LinkDown::kNetwork);
  }
}

// Reads up to ask_bytes more into the slot. Returns false if nothing arrived.
bool TcpLink::ReadSome(size_t ask_bytes) {
  std::byte* next = Slot(slot_) + kHeaderOffset + have_bytes_;
  for (;;) {
    // datapath-ok: the transport
    const ssize_t received = recv(connection_.get(), next, ask_bytes, MSG_DONTWAIT);
    if (received > 0) {
      have_bytes_ += static_cast<size_t>(received);
      return true;
    }
    if (received < 0 && errno == EINTR) continue;
    if (received == 0) fault_.Raise(LinkDown::kClosed);
    if (received < 0 && errno != EAGAIN) {
      fault_.Raise(errno == ECONNRESET ? LinkDown::kClosed : LinkDown::kNetwork);
    }
    return false;
  }
}

// Reads what has arrived of the frame at position_. Sets complete_ and usual_bytes_ if it is whole
// and valid.
void TcpLink::ReadFrame() {
  for (;;) {
    if (have_bytes_ < sizeof(Header)) {
      // usual_bytes_ is of the previous frame. It does not reach beyond the slot, and have_bytes_ <
      // sizeof(Header) <= usual_bytes_.
      if (!ReadSome(usual_bytes_ - have_bytes_)) return;
      continue;
    }
    Header header;
    std::memcpy(&header, Slot(slot_) + kHeaderOffset, sizeof(header));
    if (const sync::Fault wrong = CheckFrameHeader(header, position_, shape_.frame_bytes)) {
      fault_.Raise(wrong.code, wrong.detail);
      return;
    }
    const size_t total_bytes = sizeof(header) + header.size_bytes;
    if (have_bytes_ >= total_bytes) {
      usual_bytes_ = total_bytes;
      complete_ = true;
      return;
    }
    if (!ReadSome(total_bytes - have_bytes_)) return;
  }
}

// ---- waiting

// done() looks at the connection once. A look is a system call, which takes as long as several
// pauses, so the policy's spin has fewer looks than pauses. sync::WaitUntil cannot be used: no word
// of memory changes when a frame arrives.
template <typename Done>
bool TcpLink::Wait(const sync::WaitPolicy& policy, Done done) {
  constexpr uint32_t kPausesPerLook = 8;
  const bool spin = policy.mode == sync::WaitPolicy::Mode::kSpin;
  for (uint32_t look = 0; spin || look <= policy.spin_iterations / kPausesPerLook; ++look) {
    if (done()) return true;
    if (fault_.raised()) return false;
    sync::CpuPause();
  }
  for (;;) {
    pollfd watched[2] = {{connection_.get(), POLLIN, 0}, {fault_.fd(), POLLIN, 0}};
    poll(watched, 2, -1);  // datapath-ok: reached when a wait outlasted its spin
    if (done()) return true;
    if (fault_.raised()) return false;
  }
}

bool TcpLink::WaitSend(const sync::WaitPolicy& policy) {
  return Wait(policy, [this] { return static_cast<bool>(BeginSend()); });
}

bool TcpLink::WaitReceive(const sync::WaitPolicy& policy) {
  return Wait(policy, [this] { return static_cast<bool>(BeginReceive()); });
}

}  // namespace larder::rdma::tcp
