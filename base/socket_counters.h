// SocketCounters: what a socket of the Plan counts about itself, as plain numbers that are read
// once and passed on whole: from its atomics (pipeline/stage/socket_status.h) through frames to
// metrics and status.
#pragma once

#include <cstdint>
#include <type_traits>

namespace larder {

// All but weight_bytes, resident_bytes and round_trip_ns only grow.
struct SocketCounters {
  uint64_t frames = 0;          // finished
  uint64_t rows = 0;            // tokens in those frames
  uint64_t step_ns = 0;         // computing frames
  uint64_t wait_ns = 0;         // waiting for a frame, while the socket could compute
  uint64_t link_ns = 0;         // waiting for a slot of the link to the next socket
  uint64_t weight_bytes = 0;    // 0: the socket holds no weights
  uint64_t resident_bytes = 0;  // the part of weight_bytes that is re-read at the speed of L3
  uint64_t round_trip_ns = 0;   // the last one measured on the socket's link; 0: not measured
};
static_assert(sizeof(SocketCounters) == 64 &&
              std::is_trivially_copyable_v<SocketCounters>);  // in frames

}  // namespace larder
