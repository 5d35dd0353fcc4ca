// Link: the interface of every connection between two stages. A link has one direction. It carries
// frames of a fixed size in slots that are allocated once, with sequence numbers that start at 0
// and count up by one. No pointer, shape or type crosses a link; both ends know them from the Plan.
//
// Sender's thread:    BeginSend() -> the next slot's bytes, or null if all slots are in flight
//                     EndSend(n)  -> hands over the first n bytes of the slot (default: all);
//                                    it belongs to the link until the receiver has released it
// Receiver's thread:  BeginReceive() -> the oldest frame not yet released, or null if there is
// none;
//                                       called again before EndReceive(), it gives the same frame
//                     EndReceive()   -> gives the slot back; its bytes may be overwritten from now
//                     on
// No call blocks, throws or allocates. If a frame's sequence number is not the expected one or the
// other end is gone, the link raises its FaultFlag, and BeginSend and BeginReceive return null from
// then on.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "sync/fault.h"

namespace larder::sync {

inline constexpr size_t kWholeFrame = ~size_t{0};  // EndSend: all frame_bytes()

struct SendSlot {
  std::byte* bytes = nullptr;  // frame_bytes() writable bytes, aligned to a cache line
  uint32_t sequence = 0;       // the number that this frame will carry
  explicit operator bool() const { return bytes != nullptr; }
};

struct ReceivedFrame {
  const std::byte* bytes = nullptr;  // room for frame_bytes(), aligned to a cache line
  uint32_t sequence = 0;
  size_t size_bytes = 0;  // what the sender gave to EndSend(); bytes beyond it are left from an
                          // older frame
  explicit operator bool() const { return bytes != nullptr; }
};

template <typename L>
concept Link = requires(L& link, const L& constant) {
  { constant.frame_bytes() } -> std::same_as<size_t>;
  { constant.slots() } -> std::same_as<size_t>;  // frames that can be in flight
  { link.BeginSend() } -> std::same_as<SendSlot>;
  { link.EndSend() } -> std::same_as<void>;
  { link.EndSend(size_t{}) } -> std::same_as<void>;
  { link.BeginReceive() } -> std::same_as<ReceivedFrame>;
  { link.EndReceive() } -> std::same_as<void>;
  { constant.fault() } -> std::same_as<Fault>;
};

}  // namespace larder::sync
