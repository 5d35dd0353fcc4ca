// Test support: starts a link's sequence numbers elsewhere, sends a frame with a wrong one.
#pragma once

#include <cstdint>

#include "rdma/verbs/verbs_link.h"

namespace larder::rdma::inline verbs {

struct VerbsLinkTesting {
  // Called for both ends, before the first frame.
  static void StartAt(VerbsLink& link, uint32_t sequence) {
    link.position_ = link.other_ = link.completed_ = link.arrived_ = sequence;
  }
  static void SendNumbered(VerbsLink& link, uint32_t sequence) {
    link.BeginSend();
    link.position_ = sequence;
    link.EndSend();
  }
};

}  // namespace larder::rdma::verbs
