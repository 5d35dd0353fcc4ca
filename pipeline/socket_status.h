// SocketStatus: what a running socket counts, for `larder status`, metrics and the watchdog. Written by the
// one thread that drives the socket's frames, at frame ends; read by any thread, each number for itself.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/memory.h"

namespace larder::pipeline {

struct alignas(kFalseSharingBytes) SocketStatus {
  // relaxed everywhere: counters, nothing is published by them
  std::atomic<uint64_t> frames_started{0};   // started > finished: a frame is being computed
  std::atomic<uint64_t> frames_finished{0};  // a watchdog is content while this grows or nothing is started
  std::atomic<uint64_t> rows{0};             // tokens in those frames
  std::atomic<uint64_t> step_ns{0};          // computing frames
  std::atomic<uint64_t> wait_ns{0};          // waiting for a frame to come, while the socket could work
  std::atomic<uint64_t> link_ns{0};          // waiting for a slot of the link to the next socket
  std::atomic<uint64_t> wrong_frames{0};     // refused by their header
  std::atomic<uint64_t> reconnects{0};
  std::atomic<uint32_t> state{0};  // SocketState

  static void Add(std::atomic<uint64_t>& counter, uint64_t n) {  // one writer: no locked instruction needed
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

enum class SocketState : uint32_t { kLoading, kConnecting, kServing, kDraining, kFailed };
constexpr const char* SocketStateName(SocketState state) {
  switch (state) {
    case SocketState::kLoading:
      return "loading";
    case SocketState::kConnecting:
      return "connecting";
    case SocketState::kServing:
      return "serving";
    case SocketState::kDraining:
      return "draining";
    case SocketState::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace larder::pipeline
