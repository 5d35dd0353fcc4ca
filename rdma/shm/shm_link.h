// ShmLink: a sync::Link whose two ends are two processes of a server, or two threads, that map the
// same region. The region holds counters, numbered slots and a fault flag, but no pointer. Each end
// keeps its own position, so nothing that the other end writes decides where this end reads or
// writes.
//
// One end formats the region once, before the other attaches. Each end then makes one ShmLink for
// its side and uses it from one thread. A region serves one run: after a crash the next run makes a
// new one. The fault flag is in the region, so both ends see a fault. Any thread of either process
// (such as a PeerMonitor's) may call Fail(), which ends the waits of both ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "base/memory.h"
#include "rdma/common/link_shape.h"
#include "sync/copy_once.h"
#include "sync/fault.h"
#include "sync/link.h"
#include "sync/wait.h"

namespace larder::rdma::inline shm {

// One end's counter, on cache lines that it shares only with the number of sleepers that wait for
// it.
struct alignas(kFalseSharingBytes) ShmCounter {
  std::atomic<uint32_t> count;
  std::atomic<uint32_t> sleepers;  // threads of the other end
};

// The start of a region; the slots follow.
struct ShmLinkHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t slots;
  uint64_t frame_bytes;
  uint32_t first_sequence;
  uint32_t reserved;
  sync::FaultFlag fault;
  ShmCounter sent;      // written by the sender
  ShmCounter received;  // written by the receiver
};

struct ShmSlotHeader {
  uint32_t sequence;
  uint32_t size_bytes;  // the size of the frame that follows; at most the link's frame_bytes
};
static_assert(sizeof(ShmLinkHeader) == 4 * kFalseSharingBytes);
static_assert(std::is_standard_layout_v<ShmLinkHeader> &&
              std::is_trivially_destructible_v<ShmLinkHeader>);
static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

class alignas(kFalseSharingBytes) ShmLink {  // its positions change with every frame
 public:
  // The size of the region of a link of this shape. Throws Error if there is no such shape.
  static size_t RegionBytes(const LinkShape& shape);

  // Turns the region (RegionBytes(shape) bytes or more, aligned to a cache line) into a link with
  // no frame in flight. first_sequence is not 0 only in tests of the sequence numbers' wrap-around.
  static void Format(std::span<std::byte> region, const LinkShape& shape,
                     uint32_t first_sequence = 0);

  // Attaches one side. Throws Error if the region is not a link of this shape, or this side is
  // already taken.
  ShmLink(std::span<std::byte> region, const LinkShape& shape, LinkSide side);
  ShmLink(const ShmLink&) = delete;
  ShmLink& operator=(const ShmLink&) = delete;

  size_t frame_bytes() const { return shape_.frame_bytes; }
  size_t slots() const { return shape_.slots; }
  LinkSide side() const { return side_; }
  sync::Fault fault() const { return header_->fault.Read(); }

  sync::SendSlot BeginSend() {
    LARDER_CHECK(side_ == LinkSide::kSend, "a receiver does not send");
    // acquire: pairs with the receiver's Publish in EndReceive; the receiver has done with the
    // slots' old bytes. The fault is read after the counter, because Fail() raises it before it
    // moves the counter.
    if (position_ - other_ == shape_.slots)
      other_ = header_->received.count.load(std::memory_order_acquire);
    if (header_->fault.raised()) return {};
    const uint32_t in_flight = position_ - other_;
    if (in_flight >= shape_.slots) {
      if (in_flight > shape_.slots) Fail(sync::FaultCode::kSequence, other_);
      return {};
    }
    return {Slot() + kSlotHeaderBytes, position_};
  }
  void EndSend(size_t size_bytes = sync::kWholeFrame) {
    auto* header = reinterpret_cast<ShmSlotHeader*>(Slot());
    header->sequence = position_;
    header->size_bytes =
        static_cast<uint32_t>(size_bytes < shape_.frame_bytes ? size_bytes : shape_.frame_bytes);
    Advance(header_->sent);
  }

  sync::ReceivedFrame BeginReceive() {
    LARDER_CHECK(side_ == LinkSide::kReceive, "a sender does not receive");
    // acquire: pairs with the sender's Publish in EndSend; the frames' bytes and numbers are
    // visible
    if (other_ == position_) other_ = header_->sent.count.load(std::memory_order_acquire);
    if (header_->fault.raised()) return {};
    const uint32_t waiting = other_ - position_;
    if (waiting == 0) return {};
    ShmSlotHeader header;
    sync::CopyOnce(&header, Slot(), sizeof(header));  // the other process may still write there
    if (waiting > shape_.slots || header.sequence != position_) {
      Fail(sync::FaultCode::kSequence, header.sequence);
      return {};
    }
    if (header.size_bytes > shape_.frame_bytes) {
      Fail(sync::FaultCode::kMalformed, header.size_bytes);
      return {};
    }
    return {Slot() + kSlotHeaderBytes, position_, header.size_bytes};
  }
  void EndReceive() { Advance(header_->received); }

  // WaitSend returns when a slot is free, WaitReceive when a frame has arrived. The next
  // BeginSend() or BeginReceive() gives it, unless Fail() was called in between, so check its
  // result too. Both return false if the link has a fault. Nothing but Fail() ends the wait for a
  // peer that died.
  bool WaitSend(const sync::WaitPolicy& policy);
  bool WaitReceive(const sync::WaitPolicy& policy);

  // Raises the fault (the first one wins) and ends the waits of both ends. Any thread of either
  // process may call it.
  void Fail(sync::FaultCode code, uint32_t detail = 0);

 private:
  friend struct ShmLinkTesting;
  // A slot holds the frame's number and length, then its bytes from the next cache line on. The
  // header shares a pair of lines with the frame's first bytes, so the adjacent-line prefetcher
  // loads both with one miss.
  static constexpr size_t kSlotHeaderBytes = kCacheLineBytes;

  std::byte* Slot() const { return slots_ + slot_ * stride_; }
  void Advance(ShmCounter& counter) {
    slot_ = slot_ + 1 == shape_.slots ? 0 : slot_ + 1;
    ++position_;
    sync::Publish(counter.count, counter.sleepers, position_);
  }

  const LinkShape shape_;
  const size_t stride_;
  const LinkSide side_;
  ShmLinkHeader* const header_;
  std::byte* const slots_;
  // This end's thread only:
  uint32_t position_;  // the number of this end's current frame
  uint32_t other_;     // the other end's counter, as last read
  size_t slot_ = 0;
};
static_assert(sync::Link<ShmLink>);

}  // namespace larder::rdma::shm
