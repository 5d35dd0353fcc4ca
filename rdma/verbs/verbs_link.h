// VerbsLink: one direction of a link over a reliable connected queue pair. A sync::Link.
//
// Both ends have a registered ring. EndSend() writes the frame from the sender's slot into the same
// slot of the receiver's ring (RDMA write with immediate), inline if the device takes that many
// bytes. Nothing else is sent: the immediate value is the frame's number, and the receiver's
// completion gives its size. (A header of 16 bytes would add a second packet to each frame that
// fills the MTU.) Only every few writes ask for a completion. A slot is free again when its write
// has completed and the receiver's credit has arrived. Credits come for half a ring at a time, as
// the immediate value of an empty message. The status of each completion is checked; a bad one is a
// kLinkDown fault with VerbsFaultDetail(status).
//
// Sends and receives each have a completion queue, so that a receiver is not woken by its own
// credits. A wait polls; an adaptive policy then sleeps until the device has an event of the
// awaited queue. Only the LinkMonitor notices that an idle peer has vanished: queue pairs send no
// sign of life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "rdma/common/fault_signal.h"
#include "rdma/common/link_shape.h"
#include "sync/link.h"
#include "sync/wait.h"

struct ibv_cq;
struct ibv_wc;

namespace larder::rdma::inline verbs {

class VerbsResources;

class alignas(kFalseSharingBytes) VerbsLink {
 public:
  // resources: connected. remote_address, remote_key: those of the receiver's ring; unused at the
  // receiver. `fault` must outlive the link.
  VerbsLink(std::unique_ptr<VerbsResources> resources, const LinkShape& shape, LinkSide side,
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
  friend struct VerbsLinkTesting;
  std::byte* Slot() const { return ring_ + slot_ * stride_; }
  bool HasSlot() const {
    return position_ - other_ < shape_.slots && position_ - completed_ < shape_.slots;
  }
  void Advance() {
    slot_ = slot_ + 1 == shape_.slots ? 0 : slot_ + 1;
    ++position_;
  }
  bool HasCreditSend() const;
  void Poll();
  void Poll(ibv_cq* queue);
  void Complete(const ibv_wc& completion);
  void TakeCredit(uint32_t released);
  void ReturnCredits();
  bool Arm();
  bool Sleep();
  template <typename Done>
  bool Wait(const sync::WaitPolicy& policy, Done done);

  const LinkShape shape_;
  const LinkSide side_;
  const size_t batch_;  // frames per credit, and writes per completion
  FaultSignal& fault_;
  std::unique_ptr<VerbsResources> resources_;
  std::byte* const ring_;
  const size_t stride_;
  const uint64_t remote_address_;
  std::vector<uint32_t> sizes_;  // receiver: bytes of the frame in each slot

  // The end's thread only; counts of frames, which wrap.
  uint32_t position_ = 0;  // this end's current frame
  uint32_t other_ = 0;  // sender: released according to credits; receiver: those credits were sent
                        // for
  uint32_t completed_ = 0;     // sender: frames whose writes have completed
  uint32_t arrived_ = 0;       // receiver: frames that have arrived
  uint32_t unsignalled_ = 0;   // sender: writes since the last one that asked for a completion
  uint32_t credits_ = 0;       // receiver: credit messages sent
  uint32_t credits_done_ = 0;  // receiver: those known to have completed
  size_t slot_ = 0;            // the slot of position_
  size_t arrived_slot_ = 0;    // the slot of arrived_
  bool flushed_ = false;       // a flushed completion has been seen
};
static_assert(sync::Link<VerbsLink>);

}  // namespace larder::rdma::verbs
