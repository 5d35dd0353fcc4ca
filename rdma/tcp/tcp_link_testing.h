// Test support: starts a link's sequence numbers elsewhere, sends a frame with a wrong one.
#pragma once

#include <cstdint>

#include "rdma/tcp/tcp_link.h"

namespace larder::rdma::inline tcp {

struct TcpLinkTesting {
  // Called for both ends, before the first frame.
  static void StartAt(TcpLink& link, uint32_t sequence) { link.position_ = link.other_ = sequence; }
  static void SendNumbered(TcpLink& link, uint32_t sequence) {
    link.BeginSend();
    link.position_ = sequence;
    link.EndSend();
  }
};

}  // namespace larder::rdma::tcp
