// Test support: starts a link's sequence numbers elsewhere, sends a frame with a wrong one.
#pragma once

#include <cstdint>

#include "rdma/link/frame_link.h"
#include "rdma/link/link_ends.h"
#include "rdma/tcp/tcp_link.h"

namespace larder::rdma {

struct LinkTesting {
  // Called for both ends, before the first frame.
  static void StartAt(TcpLink& link, uint32_t sequence) { link.position_ = link.other_ = sequence; }
  static void SendNumbered(TcpLink& link, uint32_t sequence) {
    link.BeginSend();
    link.position_ = sequence;
    link.EndSend();
  }
  static void StartAt(VerbsLink& link, uint32_t sequence) {
    link.position_ = link.other_ = link.completed_ = link.arrived_ = sequence;
  }
  static void SendNumbered(VerbsLink& link, uint32_t sequence) {
    link.BeginSend();
    link.position_ = sequence;
    link.EndSend();
  }
  static void SendNumbered(ShmLink& link, uint32_t sequence) {
    std::byte* frame = link.BeginSend().bytes;
    reinterpret_cast<internal::ShmSlotHeader*>(frame - kCacheLineBytes)->sequence = sequence;
    link.Advance(link.header_->sent);
  }

  static int DataFd(FrameLink& link) { return std::get<std::unique_ptr<TcpEnd>>(link.end_)->link.fd(); }
  static void StartAt(FrameLink& link, uint32_t sequence) {
    if (auto* tcp = std::get_if<std::unique_ptr<TcpEnd>>(&link.end_)) StartAt((*tcp)->link, sequence);
    if (auto* verbs = std::get_if<std::unique_ptr<VerbsEnd>>(&link.end_)) StartAt((*verbs)->link, sequence);
  }
  static void SendNumbered(FrameLink& link, uint32_t sequence) {
    if (auto* shm = std::get_if<std::unique_ptr<ShmEnd>>(&link.end_)) SendNumbered((*shm)->link, sequence);
    if (auto* tcp = std::get_if<std::unique_ptr<TcpEnd>>(&link.end_)) SendNumbered((*tcp)->link, sequence);
    if (auto* verbs = std::get_if<std::unique_ptr<VerbsEnd>>(&link.end_)) {
      SendNumbered((*verbs)->link, sequence);
    }
  }
};

}  // namespace larder::rdma
