// Test support: sends a frame with a wrong sequence number.
#pragma once

#include <cstdint>

#include "rdma/shm/shm_link.h"

namespace larder::rdma::inline shm {

struct ShmLinkTesting {
  static void SendNumbered(ShmLink& link, uint32_t sequence) {
    std::byte* frame = link.BeginSend().bytes;
    reinterpret_cast<ShmSlotHeader*>(frame - kCacheLineBytes)->sequence = sequence;
    link.Advance(link.header_->sent);
  }
};

}  // namespace larder::rdma::shm
