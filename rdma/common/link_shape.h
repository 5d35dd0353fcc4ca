// LinkShape: the sizes of a link, the same for every transport and at both ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "base/memory.h"

namespace larder::rdma::inline common {

struct LinkShape {
  static constexpr size_t kMaxFrameBytes = size_t{1} << 30;
  static constexpr size_t kMaxSlots = size_t{1} << 16;

  size_t frame_bytes = 0;  // the largest frame, 1 byte to 1 GiB
  size_t slots = 0;        // frames in flight, 1..65536

  // Throws Error if a size is out of its range.
  void Check() const {
    if (frame_bytes == 0 || frame_bytes > kMaxFrameBytes || slots == 0 || slots > kMaxSlots) {
      throw Error("link: {} slots of {} bytes: expected 1..{} slots of 1 byte to {} bytes", slots,
                  frame_bytes, kMaxSlots, kMaxFrameBytes);
    }
  }
  // The distance between two slots that each hold a header and a frame. Throws Error as Check does.
  size_t SlotStride(size_t header_bytes) const {
    Check();
    return RoundUp(header_bytes + frame_bytes, kFalseSharingBytes);
  }
};

enum class LinkSide : uint32_t { kSend, kReceive };

// The number of frames whose credits go back together. It keeps these small messages few, and the
// sender has the other half of the ring meanwhile. The credits go when the receiver next looks for
// a frame and finds none, so that they do not delay what it sends on to the next stage; at the
// latest one frame later.
constexpr size_t CreditBatch(size_t slots) { return slots < 2 ? 1 : slots / 2; }
// The number of released frames whose credits are sent at once.
constexpr size_t CreditLimit(size_t slots) { return slots < 2 ? 1 : slots / 2 + 1; }

}  // namespace larder::rdma::common
