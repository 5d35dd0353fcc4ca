// VerbsLink: one direction of a link over a reliable connected queue pair. A sync::Link.
//
// Both ends have a registered ring. EndSend() writes header and frame from the sender's slot into the same
// slot of the receiver's ring (RDMA write with immediate; the immediate number is the frame's), inline when
// the device takes that much. Only every few writes ask for a completion, and a slot is free again when its
// write completed and the receiver's credit came: half a ring at a time, as the immediate number of an empty
// message. The status of each completion is looked at; one that is not good is a kLinkDown fault with
// VerbsFaultDetail(status).
//
// Waiting polls the completion queue; an adaptive policy then sleeps until the device has an event. A
// vanished peer that owes nothing is noticed by the LinkMonitor only: queue pairs have no sign of life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/memory.h"
#include "rdma/fault_signal.h"
#include "rdma/link_wire.h"
#include "rdma/shm_link.h"
#include "sync/link.h"
#include "sync/wait.h"

struct ibv_wc;

namespace larder::rdma {

class VerbsResources;

class alignas(kFalseSharingBytes) VerbsLink {
 public:
  // resources: connected. remote_address, remote_key: of the receiver's ring; the receiver has none. fault
  // must outlive the link.
  VerbsLink(std::unique_ptr<VerbsResources> resources, const ShmLinkShape& shape, LinkSide side,
            uint64_t remote_address, uint32_t remote_key, FaultSignal& fault);
  ~VerbsLink();
  VerbsLink(const VerbsLink&) = delete;
  VerbsLink& operator=(const VerbsLink&) = delete;

  size_t frame_bytes() const { return shape_.frame_bytes; }
  size_t slots() const { return shape_.slots; }
  sync::Fault fault() const { return fault_.Read(); }
  const VerbsResources& resources() const { return *resources_; }

  sync::SendSlot BeginSend();
  void EndSend(size_t size_bytes = sync::kWholeFrame);
  sync::ReceivedFrame BeginReceive();
  void EndReceive();
  bool WaitSend(const sync::WaitPolicy& policy);
  bool WaitReceive(const sync::WaitPolicy& policy);

 private:
  friend struct LinkTesting;
  using Header = internal::FrameHeader;
  static constexpr size_t kFrameOffset = kCacheLineBytes;
  static constexpr size_t kHeaderOffset = kFrameOffset - sizeof(Header);

  std::byte* Slot() const { return ring_ + slot_ * stride_; }
  bool HasSlot() const { return position_ - other_ < shape_.slots && position_ - completed_ < shape_.slots; }
  void Advance() {
    slot_ = slot_ + 1 == shape_.slots ? 0 : slot_ + 1;
    ++position_;
  }
  void Poll();
  void Complete(const ibv_wc& completion);
  void TakeCredit(uint32_t released);
  void ReturnCredits();
  bool Sleep();
  template <typename Done>
  bool Wait(const sync::WaitPolicy& policy, Done done);

  const ShmLinkShape shape_;
  const LinkSide side_;
  const size_t batch_;  // frames a credit, writes a completion
  FaultSignal& fault_;
  std::unique_ptr<VerbsResources> resources_;
  std::byte* const ring_;
  const size_t stride_;
  const uint64_t remote_address_;
  const uint32_t remote_key_;

  // The end's thread only; numbers of frames, that wrap.
  uint32_t position_ = 0;        // the frame that this end is at
  uint32_t other_ = 0;           // sender: released, as credits say; receiver: credits were sent for
  uint32_t completed_ = 0;       // sender: frames whose writes have completed
  uint32_t arrived_ = 0;         // receiver: frames that have come
  uint32_t unsignalled_ = 0;     // sender: writes since the last that asked for a completion
  uint32_t credits_posted_ = 0;  // receiver: messages whose completion has not been seen
  size_t slot_ = 0;              // of position_
};
static_assert(sync::Link<VerbsLink>);

}  // namespace larder::rdma
