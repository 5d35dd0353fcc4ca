// SocketCounters: what a socket of the Plan counts about itself, as plain numbers that are read
// once and passed on whole: from its atomics (pipeline/stage/socket_status.h) through frames to
// metrics and status.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

namespace larder {

// All but weight_bytes, the resident bytes and round_trip_ns only grow.
struct SocketCounters {
  static constexpr uint64_t kNotMeasured = UINT64_MAX;
  uint64_t frames = 0;          // finished
  uint64_t rows = 0;            // tokens in those frames
  uint64_t step_ns = 0;         // computing frames
  uint64_t wait_ns = 0;         // waiting for a frame, while the socket could compute
  uint64_t link_ns = 0;         // waiting for a slot of the link to the next socket
  uint64_t weight_bytes = 0;    // 0: the socket holds no weights
  uint64_t resident_bytes = 0;  // the part of weight_bytes that is re-read at the speed of L3
  uint64_t round_trip_ns = 0;   // the last one measured on the socket's link; 0: not measured
  // As resident_bytes, but when micro-batches come to read them (pipeline/residency/).
  uint64_t live_resident_bytes = kNotMeasured;
  // As a share of weight_bytes; nullopt: no figure.
  std::optional<double> live_resident_share() const {
    if (live_resident_bytes == kNotMeasured || weight_bytes == 0) return std::nullopt;
    return static_cast<double>(live_resident_bytes) / static_cast<double>(weight_bytes);
  }
};
static_assert(sizeof(SocketCounters) == 72 &&
              std::is_trivially_copyable_v<SocketCounters>);  // in frames

}  // namespace larder
