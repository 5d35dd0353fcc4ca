// TcpLink: one direction of a link over a TCP connection, for servers without an RDMA device. It is
// a sync::Link. Compared with verbs it costs a system call and a copy through the kernel at each
// end.
//
// Each end uses its TcpLink from one thread. The sender has a ring of slots. A frame is written
// from its slot without another copy; the slot is free again when the receiver's credit for it has
// arrived (credits come in batches of half a ring, in the other direction of the same connection).
// The receiver reads into its slot: it asks for as many bytes as the last frame had, so that a
// frame of the usual size costs one system call, and moves what it has read of the next frame to
// that frame's slot. It needs only two slots: the kernel holds the rest.
//
// EndSend() never waits, whatever the receiver does. If the connection does not take all bytes at
// once, a helper thread sends the rest when it does. Otherwise a ring of stages that all send
// before they receive could deadlock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/descriptor.h"
#include "base/memory.h"
#include "rdma/common/fault_signal.h"
#include "rdma/common/link_shape.h"
#include "rdma/proof/link_wire.h"
#include "sync/link.h"
#include "sync/wait.h"
#include "topology/arena.h"

namespace larder::rdma::inline tcp {

class alignas(kFalseSharingBytes) TcpLink {
 public:
  // connection: non-blocking, connected, with TCP_NODELAY, not read from yet. `fault` must outlive
  // the link. Throws Error for a shape that LinkShape::Check refuses, or if there is not enough
  // memory.
  TcpLink(Descriptor connection, const LinkShape& shape, LinkSide side, FaultSignal& fault);
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

  // As ShmLink's. A spinning policy polls the connection without end; an adaptive one sleeps in
  // poll().
  bool WaitSend(const sync::WaitPolicy& policy);
  bool WaitReceive(const sync::WaitPolicy& policy);

 private:
  friend struct TcpLinkTesting;
  using Header = FrameHeader;
  // A slot holds unused bytes, the header, and the frame from the next cache line on, so that
  // header and frame are contiguous.
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

  const LinkShape shape_;
  const size_t stride_;
  const LinkSide side_;
  FaultSignal& fault_;
  Descriptor connection_;
  topology::Arena memory_;

  // The end's thread only:
  uint32_t position_ = 0;  // the number of this end's current frame
  // Sender: frames that credits say are released. Receiver: frames for which credits were sent.
  uint32_t other_ = 0;
  size_t slot_ = 0;  // the slot of position_
  // Receiver: bytes of slot_, from kHeaderOffset on, that have arrived, and whether they hold the
  // whole frame.
  size_t have_bytes_ = 0;
  size_t usual_bytes_ = 0;  // header and frame of the previous frame
  bool complete_ = false;
  // Sender: a credit of which credit_bytes_ have arrived.
  uint32_t credit_ = 0;
  size_t credit_bytes_ = 0;

  // The right to write to the connection. The thread that finds writing_ false and sets it owns the
  // fields after it. A sender whose connection is full passes them on to the helper thread.
  // queued_: frames that EndSend() handed over.
  alignas(kFalseSharingBytes) std::atomic<uint32_t> queued_{0};
  std::atomic<bool> writing_{false};
  uint32_t written_ = 0;      // frames
  size_t written_slot_ = 0;   // the slot of the frame that is being written
  size_t written_bytes_ = 0;  // how much of that frame with its header is written
  Descriptor help_;           // eventfd: tells the helper thread that it owns the writing now
  Descriptor stop_;           // eventfd
  std::thread helper_;        // sender only
};
static_assert(sync::Link<TcpLink>);

}  // namespace larder::rdma::tcp
