// Test support: starts a link's sequence numbers elsewhere, sends a frame with a wrong one.
#pragma once

#include <cstdint>

#include "rdma/link/frame_link.h"
#include "rdma/link/link_ends.h"
#include "rdma/shm/shm_link_testing.h"
#include "rdma/tcp/tcp_link_testing.h"
#include "rdma/verbs/verbs_link_testing.h"

namespace larder::rdma::inline link {

struct LinkTesting {
  static int DataFd(FrameLink& link) {
    return std::get<std::unique_ptr<TcpEnd>>(link.end_)->link.fd();
  }
  // Called for both ends, before the first frame.
  static void StartAt(FrameLink& link, uint32_t sequence) {
    if (auto* tcp = std::get_if<std::unique_ptr<TcpEnd>>(&link.end_))
      TcpLinkTesting::StartAt((*tcp)->link, sequence);
    if (auto* verbs = std::get_if<std::unique_ptr<VerbsEnd>>(&link.end_))
      VerbsLinkTesting::StartAt((*verbs)->link, sequence);
  }
  static void SendNumbered(FrameLink& link, uint32_t sequence) {
    if (auto* shm = std::get_if<std::unique_ptr<ShmEnd>>(&link.end_))
      ShmLinkTesting::SendNumbered((*shm)->link, sequence);
    if (auto* tcp = std::get_if<std::unique_ptr<TcpEnd>>(&link.end_))
      TcpLinkTesting::SendNumbered((*tcp)->link, sequence);
    if (auto* verbs = std::get_if<std::unique_ptr<VerbsEnd>>(&link.end_)) {
      VerbsLinkTesting::SendNumbered((*verbs)->link, sequence);
    }
  }
};

}  // namespace larder::rdma::link
