// LoopbackLink: a Link whose two ends are two threads (or one) of the same process. The slots are
// allocated at construction. It is the plainest example of the contract in link.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/error.h"
#include "base/memory.h"
#include "sync/link.h"

namespace larder::sync {

class LoopbackLink {
 public:
  LoopbackLink(size_t frame_bytes, size_t slots)
      : frame_bytes_(frame_bytes),
        slots_(slots),
        stride_(RoundUp(kHeaderBytes + frame_bytes, kFalseSharingBytes)) {
    if (frame_bytes == 0 || frame_bytes > (size_t{1} << 30) || slots == 0 ||
        slots > (size_t{1} << 16)) {
      throw Error("loopback link: {} slots of {} bytes: expected 1..65536 slots of 1 byte to 1 GiB",
                  slots, frame_bytes);
    }
    memory_.reset(static_cast<std::byte*>(
        ::operator new (stride_* slots, std::align_val_t{kFalseSharingBytes})));
  }

  size_t frame_bytes() const { return frame_bytes_; }
  size_t slots() const { return slots_; }
  Fault fault() const { return fault_.Read(); }

  SendSlot BeginSend() {
    if (fault_.raised()) return {};
    const uint32_t sent = sent_.load(std::memory_order_relaxed);  // only the sender writes it
    // acquire: pairs with the release in EndReceive; the receiver no longer reads the slot's old
    // bytes
    if (sent - received_.load(std::memory_order_acquire) == slots_) return {};
    return {Slot(send_slot_) + kHeaderBytes, sent};
  }
  void EndSend(size_t size_bytes = kWholeFrame) {
    const uint32_t sent = sent_.load(std::memory_order_relaxed);
    auto* header = reinterpret_cast<Header*>(Slot(send_slot_));
    header->sequence = sent;
    header->size_bytes = size_bytes < frame_bytes_ ? size_bytes : frame_bytes_;
    send_slot_ = send_slot_ + 1 == slots_ ? 0 : send_slot_ + 1;
    sent_.store(sent + 1, std::memory_order_release);
  }

  ReceivedFrame BeginReceive() {
    if (fault_.raised()) return {};
    // only the receiver writes it
    const uint32_t received = received_.load(std::memory_order_relaxed);
    // acquire: pairs with the release in EndSend; the frame's bytes and its number are visible
    if (sent_.load(std::memory_order_acquire) == received) return {};
    const std::byte* slot = Slot(receive_slot_);
    const auto* header = reinterpret_cast<const Header*>(slot);
    if (header->sequence != received) {
      fault_.Raise(FaultCode::kSequence, header->sequence);
      return {};
    }
    return {slot + kHeaderBytes, received, header->size_bytes};
  }
  void EndReceive() {
    receive_slot_ = receive_slot_ + 1 == slots_ ? 0 : receive_slot_ + 1;
    received_.store(received_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

 private:
  struct Header {
    uint32_t sequence;
    uint32_t reserved;
    size_t size_bytes;
  };
  static constexpr size_t kHeaderBytes = kCacheLineBytes;  // keeps the frame line-aligned
  static_assert(sizeof(Header) <= kHeaderBytes);
  struct Free {
    void operator()(std::byte* p) const {
      ::operator delete (p, std::align_val_t{kFalseSharingBytes});
    }
  };
  std::byte* Slot(size_t index) { return memory_.get() + index * stride_; }

  const size_t frame_bytes_;
  const size_t slots_;
  const size_t stride_;
  std::unique_ptr<std::byte[], Free> memory_;
  FaultFlag fault_;
  alignas(kFalseSharingBytes) std::atomic<uint32_t> sent_{0};      // written by the sender
  size_t send_slot_ = 0;                                           // sender's
  alignas(kFalseSharingBytes) std::atomic<uint32_t> received_{0};  // written by the receiver
  size_t receive_slot_ = 0;                                        // receiver's
};
static_assert(Link<LoopbackLink>);

}  // namespace larder::sync
