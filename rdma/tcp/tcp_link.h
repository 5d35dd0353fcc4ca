// TcpLink: one direction of a link over a TCP connection, for servers without an RDMA device. A sync::Link;
// its price against verbs is a system call and a copy through the kernel at each end.
//
// Each end uses its TcpLink from one thread. The sender has a ring of slots, a frame is written from its slot
// without another copy, and the slot is free again when the receiver's credit for it has come (credits come
// in batches of half a ring, on the same connection's way back). The receiver reads into place: it asks for
// as many bytes as the last frame had, so that a frame of the usual size costs one system call; what it read
// of the next frame moves to that frame's slot. It needs two slots only: the kernel holds the rest.
//
// EndSend() never waits, whatever the receiver does: what the connection does not take at once a helper
// thread sends when it does. Else a ring of stages that all send before they receive could stand still.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/memory.h"
#include "rdma/ipc/descriptor.h"
#include "rdma/ipc/fault_signal.h"
#include "rdma/proof/link_wire.h"
#include "rdma/shm/shm_link.h"
#include "sync/link.h"
#include "sync/wait.h"
#include "topology/arena.h"

namespace larder::rdma {

// Frames whose credits go back together: few small messages, and the sender has the other half of the ring
// meanwhile. They go when the receiver next looks for a frame and finds none, so that they do not delay what
// it sends on; at the latest one frame later.
constexpr size_t CreditBatch(size_t slots) { return slots < 2 ? 1 : slots / 2; }
// So many released frames are never held back.
constexpr size_t CreditLimit(size_t slots) { return slots < 2 ? 1 : slots / 2 + 1; }

class alignas(kFalseSharingBytes) TcpLink {
 public:
  // connection: non-blocking, connected, with TCP_NODELAY, nothing read from it yet. fault must outlive the
  // link. Error for impossible shapes (as ShmLinkShape) or missing memory.
  TcpLink(Descriptor connection, const ShmLinkShape& shape, LinkSide side, FaultSignal& fault);
  ~TcpLink();
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  size_t frame_bytes() const { return shape_.frame_bytes; }
  size_t slots() const { return shape_.slots; }
  sync::Fault fault() const { return fault_.Read(); }
  const topology::Arena& memory() const { return memory_; }
  int fd() const { return connection_.get(); }

  sync::SendSlot BeginSend();
  void EndSend(size_t size_bytes = sync::kWholeFrame);
  sync::ReceivedFrame BeginReceive();
  void EndReceive();

  // As ShmLink's. A spinning policy polls the socket for ever; an adaptive one sleeps in poll().
  bool WaitSend(const sync::WaitPolicy& policy);
  bool WaitReceive(const sync::WaitPolicy& policy);

 private:
  friend struct LinkTesting;
  using Header = internal::FrameHeader;
  // A slot: unused bytes, the header, the frame on a cache line of its own; so header and frame are one
  // piece.
  static constexpr size_t kFrameOffset = kCacheLineBytes;
  static constexpr size_t kHeaderOffset = kFrameOffset - sizeof(Header);

  std::byte* Slot(size_t index) const { return memory_.data() + index * stride_; }
  template <typename Done>
  bool Wait(const sync::WaitPolicy& policy, Done done);

  void ReadCredits();
  void Flush();
  bool WriteQueued();
  void RunHelper();

  bool ReadSome(size_t ask_bytes);
  void ReadFrame();
  void ReturnCredits();

  const ShmLinkShape shape_;
  const size_t stride_;
  const LinkSide side_;
  FaultSignal& fault_;
  Descriptor connection_;
  topology::Arena memory_;

  // The end's thread only:
  uint32_t position_ = 0;  // the number of the frame that this end is at
  uint32_t other_ =
      0;             // sender: frames released, as credits say; receiver: frames that credits were sent for
  size_t slot_ = 0;  // of position_
  // receiver: bytes of slot_, from kHeaderOffset on, that have come; and whether they hold the whole frame
  size_t have_bytes_ = 0;
  size_t usual_bytes_ = 0;  // header and frame, of the frame before
  bool complete_ = false;
  // sender: a credit of which credit_bytes_ have come
  uint32_t credit_ = 0;
  size_t credit_bytes_ = 0;

  // Who writes to the connection. Whoever finds writing_ false and sets it owns the fields after it; the
  // helper inherits them from a sender whose connection was full.
  alignas(kFalseSharingBytes) std::atomic<uint32_t> queued_{0};  // frames that EndSend() handed over
  std::atomic<bool> writing_{false};
  uint32_t written_ = 0;      // frames
  size_t written_slot_ = 0;   // of the frame that is being written
  size_t written_bytes_ = 0;  // of that frame with its header
  Descriptor help_;           // eventfd: the helper owns the writing now
  Descriptor stop_;           // eventfd
  std::thread helper_;        // sender only
};
static_assert(sync::Link<TcpLink>);

}  // namespace larder::rdma
