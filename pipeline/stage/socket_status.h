// SocketStatus: the counters of a running socket, for `larder status`, metrics and the watchdog.
// The one thread that drives the socket's frames writes them at frame ends; any thread may read
// them, without consistency between the numbers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/memory.h"
#include "base/pulse.h"
#include "base/socket_counters.h"

namespace larder::pipeline::inline stage {

struct alignas(kFalseSharingBytes) SocketStatus {
  // relaxed everywhere: they are counters and publish no other data
  std::atomic<uint64_t> frames_started{0};   // started > finished: a frame is being computed
  std::atomic<uint64_t> frames_finished{0};  // the watchdog wants this to grow while a frame is
                                             // started
  std::atomic<uint64_t> rows{0};             // tokens in those frames
  std::atomic<uint64_t> step_ns{0};          // computing frames
  std::atomic<uint64_t> wait_ns{0};          // waiting for a frame, while the socket could compute
  std::atomic<uint64_t> link_ns{0};          // waiting for a slot of the link to the next socket
  std::atomic<uint64_t> wrong_frames{0};     // frames refused because of their header
  std::atomic<uint64_t> reconnects{0};
  std::atomic<uint64_t> weight_bytes{0};    // 0: the socket holds no weights
  std::atomic<uint64_t> resident_bytes{0};  // the part re-read at the speed of L3 right after
                                            // packing
  std::atomic<uint64_t> live_resident_bytes{SocketCounters::kNotMeasured};  // while it computes
  std::atomic<uint64_t> round_trip_ns{0};  // the last one measured on the socket's link; 0: not
                                           // measured
  std::atomic<uint32_t> state{0};          // SocketState
  Pulse pulse;  // the driving thread's; rests while it waits for another socket or for work

  // one writer: no locked instruction needed
  static void Add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

enum class SocketState : uint32_t { kLoading, kConnecting, kServing, kFailed };
constexpr const char* SocketStateName(SocketState state) {
  switch (state) {
    case SocketState::kLoading:
      return "loading";
    case SocketState::kConnecting:
      return "connecting";
    case SocketState::kServing:
      return "serving";
    case SocketState::kFailed:
      return "failed";
  }
  return "unknown";
}

// The counters of a status: the part that is sent from socket to socket, so that the serving socket
// can show all of them.
inline SocketCounters LoadCounters(const SocketStatus& status) {
  const auto load = [](const std::atomic<uint64_t>& number) {
    return number.load(std::memory_order_relaxed);
  };
  return {.frames = load(status.frames_finished),
          .rows = load(status.rows),
          .step_ns = load(status.step_ns),
          .wait_ns = load(status.wait_ns),
          .link_ns = load(status.link_ns),
          .weight_bytes = load(status.weight_bytes),
          .resident_bytes = load(status.resident_bytes),
          .round_trip_ns = load(status.round_trip_ns),
          .live_resident_bytes = load(status.live_resident_bytes)};
}

// The reverse. One writer.
inline void StoreCounters(const SocketCounters& counters, SocketStatus& status) {
  const auto store = [](std::atomic<uint64_t>& number, uint64_t value) {
    number.store(value, std::memory_order_relaxed);
  };
  store(status.frames_started, counters.frames);
  store(status.frames_finished, counters.frames);
  store(status.rows, counters.rows);
  store(status.step_ns, counters.step_ns);
  store(status.wait_ns, counters.wait_ns);
  store(status.link_ns, counters.link_ns);
  store(status.weight_bytes, counters.weight_bytes);
  store(status.resident_bytes, std::min(counters.resident_bytes, counters.weight_bytes));
  store(status.round_trip_ns, counters.round_trip_ns);
  const uint64_t live = counters.live_resident_bytes;
  store(status.live_resident_bytes,
        live == SocketCounters::kNotMeasured ? live : std::min(live, counters.weight_bytes));
}

}  // namespace larder::pipeline::stage
