// A VerbsLink's frames: posting, completions, credits, waiting.
#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>

#include "base/check.h"
#include "rdma/verbs/verbs_link.h"
#include "rdma/verbs/verbs_resources.h"

namespace larder::rdma::inline verbs {

using sync::FaultCode;

// ---- sender

sync::SendSlot VerbsLink::BeginSend() {
  LARDER_CHECK(side_ == LinkSide::kSend, "a receiver does not send");
  if (fault_.raised()) return {};
  if (!HasSlot()) {
    Poll();
    if (!HasSlot() || fault_.raised()) return {};
  }
  return {Slot(), position_};
}

void VerbsLink::EndSend(size_t size_bytes) {
  if (fault_.raised()) return;  // the queue pair may refuse all work
  ibv_sge& piece = resources_->piece;
  piece.addr = reinterpret_cast<uint64_t>(Slot());
  piece.length = static_cast<uint32_t>(std::min(size_bytes, shape_.frame_bytes));
  ibv_send_wr& write = resources_->write;
  write.wr_id = WorkId(VerbsWork::kFrameSend, position_ + 1);
  write.imm_data = htonl(position_);
  write.wr.rdma.remote_addr = remote_address_ + slot_ * stride_;
  write.send_flags = piece.length <= resources_->inline_bytes ? IBV_SEND_INLINE : 0;
  // A completion stands for all writes before it, so one per batch is enough: a slot is needed
  // again at the earliest a whole ring later, and by then a write that asks for a completion has
  // been posted after it.
  if (++unsignalled_ >= batch_) {
    unsignalled_ = 0;
    write.send_flags |= IBV_SEND_SIGNALED;
  }
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(resources_->pair.get(), &write, &refused) != 0) [[unlikely]] {
    fault_.Raise(LinkDown::kNetwork);
  }
  Advance();
}

// released: how many frames the receiver has released. It must move forward, and not beyond what
// was sent.
void VerbsLink::TakeCredit(uint32_t released) {
  if (released - other_ == 0 || released - other_ > position_ - other_) {
    fault_.Raise(FaultCode::kMalformed, released);
    return;
  }
  other_ = released;
  ibv_recv_wr receive = {};
  receive.wr_id = WorkId(VerbsWork::kCreditReceive, 0);
  ibv_recv_wr* refused = nullptr;
  if (ibv_post_recv(resources_->pair.get(), &receive, &refused) != 0)
    fault_.Raise(LinkDown::kNetwork);
}

// ---- receiver

sync::ReceivedFrame VerbsLink::BeginReceive() {
  LARDER_CHECK(side_ == LinkSide::kReceive, "a sender does not receive");
  if (fault_.raised()) return {};
  if (arrived_ == position_) {
    Poll(resources_->receives.get());
    if (arrived_ == position_ && position_ - other_ >= batch_) ReturnCredits();
    if (arrived_ == position_ || fault_.raised()) return {};
  }
  return {Slot(), position_, sizes_[slot_]};
}

void VerbsLink::EndReceive() {
  if (arrived_ == position_) return;  // there is no frame, because of a fault
  Advance();
  if (position_ - other_ >= CreditLimit(shape_.slots)) ReturnCredits();
}

bool VerbsLink::HasCreditSend() const {
  return credits_ - credits_done_ < VerbsResources::kCreditSends;
}

// Posts the receives for the next frames first, then sends the credits for those frames, so that no
// frame arrives before its receive is posted.
void VerbsLink::ReturnCredits() {
  if (!HasCreditSend()) Poll(resources_->sends.get());
  if (!HasCreditSend() || fault_.raised()) return;  // BeginReceive() tries again
  for (uint32_t n = other_; n != position_; ++n) {
    ibv_recv_wr receive = {};
    receive.wr_id = WorkId(VerbsWork::kFrameReceive, 0);
    ibv_recv_wr* refused = nullptr;
    if (ibv_post_recv(resources_->pair.get(), &receive, &refused) != 0) [[unlikely]] {
      fault_.Raise(LinkDown::kNetwork);
      return;
    }
  }
  ibv_send_wr credit = {};
  credit.wr_id = WorkId(VerbsWork::kCreditSend, ++credits_);
  credit.opcode = IBV_WR_SEND_WITH_IMM;  // empty: it needs neither address nor key
  credit.imm_data = htonl(position_);
  // A completion stands for all credits before it. It is requested twice per kCreditSends, before
  // all places are used up.
  if (credits_ % (VerbsResources::kCreditSends / 2) == 0) credit.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(resources_->pair.get(), &credit, &refused) != 0) [[unlikely]] {
    fault_.Raise(LinkDown::kNetwork);
    return;
  }
  other_ = position_;
}

// ---- both

void VerbsLink::Poll() {
  Poll(resources_->sends.get());
  Poll(resources_->receives.get());
}

void VerbsLink::Poll(ibv_cq* queue) {
  constexpr int kAtOnce = 16;
  ibv_wc completions[kAtOnce];
  const int count = ibv_poll_cq(queue, kAtOnce, completions);
  if (count < 0) [[unlikely]] {
    fault_.Raise(LinkDown::kNetwork);
    return;
  }
  for (int i = 0; i < count; ++i) Complete(completions[i]);
}

// Sends and receives complete in no order relative to each other: the other end's next message may
// arrive before our own last write is known to be complete.
void VerbsLink::Complete(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    // Flushed: the queue pair was closed, on either side. The work that ended it says more, and may
    // be a send.
    if (completion.status == IBV_WC_WR_FLUSH_ERR) {
      if (!flushed_) {
        flushed_ = true;
        Poll(resources_->sends.get());
      }
      fault_.Raise(LinkDown::kClosed);
    } else {
      fault_.Raise(FaultCode::kLinkDown,
                   VerbsFaultDetail(static_cast<uint32_t>(completion.status)));
    }
    return;
  }
  switch (static_cast<VerbsWork>(completion.wr_id >> 32)) {
    case VerbsWork::kFrameSend:
      completed_ = static_cast<uint32_t>(completion.wr_id);
      return;
    case VerbsWork::kCreditSend:
      credits_done_ = static_cast<uint32_t>(completion.wr_id);
      return;
    case VerbsWork::kCreditReceive:
      TakeCredit(ntohl(completion.imm_data));
      return;
    case VerbsWork::kFrameReceive: {
      const uint32_t sequence = ntohl(completion.imm_data);
      const bool is_frame = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
                            (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
      if (!is_frame || arrived_ - other_ >= shape_.slots) [[unlikely]] {
        fault_.Raise(FaultCode::kMalformed, sequence);
      } else if (sequence != arrived_) [[unlikely]] {
        fault_.Raise(FaultCode::kSequence, sequence);
      } else if (completion.byte_len > shape_.frame_bytes) [[unlikely]] {
        fault_.Raise(FaultCode::kMalformed, completion.byte_len);
      } else {
        sizes_[arrived_slot_] = completion.byte_len;
        arrived_slot_ = arrived_slot_ + 1 == shape_.slots ? 0 : arrived_slot_ + 1;
        ++arrived_;
      }
      return;
    }
  }
  fault_.Raise(FaultCode::kInternal, static_cast<uint32_t>(completion.wr_id));
}

// Asks for an event of the awaited completions only: a wake-up for completions that are not needed
// costs more than the frame. What this end waits for does not change until it polls.
bool VerbsLink::Arm() {
  const bool sends = side_ == LinkSide::kSend;
  const bool for_receive = !sends || position_ - other_ >= shape_.slots;
  const bool for_send = sends ? position_ - completed_ >= shape_.slots : !HasCreditSend();
  return (!for_receive || ibv_req_notify_cq(resources_->receives.get(), 0) == 0) &&
         (!for_send || ibv_req_notify_cq(resources_->sends.get(), 0) == 0);
}

// Sleeps until the device has an event or there is a fault. The caller asks for the event before
// its last look, so a completion between the two ends the sleep.
bool VerbsLink::Sleep() {
  pollfd watched[2] = {{resources_->completions->fd, POLLIN, 0}, {fault_.fd(), POLLIN, 0}};
  poll(watched, 2, -1);  // datapath-ok: reached when a wait outlasted its spin
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  // Takes one event; a second one, which is rare, ends the next poll() at once.
  if (watched[0].revents != 0 &&
      ibv_get_cq_event(resources_->completions.get(), &queue, &context) == 0)
    ibv_ack_cq_events(queue, 1);
  return !fault_.raised();
}

template <typename Done>
bool VerbsLink::Wait(const sync::WaitPolicy& policy, Done done) {
  const bool spin = policy.mode == sync::WaitPolicy::Mode::kSpin;
  for (uint32_t look = 0; spin || look <= policy.spin_iterations; ++look) {
    if (done()) return true;
    if (fault_.raised()) return false;
    sync::CpuPause();
  }
  for (;;) {
    if (!Arm()) [[unlikely]] {
      fault_.Raise(LinkDown::kNetwork);
      return false;
    }
    if (done()) return true;
    if (!Sleep()) return false;
    if (done()) return true;
  }
}

bool VerbsLink::WaitSend(const sync::WaitPolicy& policy) {
  return Wait(policy, [this] { return static_cast<bool>(BeginSend()); });
}

bool VerbsLink::WaitReceive(const sync::WaitPolicy& policy) {
  return Wait(policy, [this] { return static_cast<bool>(BeginReceive()); });
}

}  // namespace larder::rdma::verbs
