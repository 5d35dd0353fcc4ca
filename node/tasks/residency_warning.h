// The warning that weights which the Plan keeps in L3 are no longer found there while the model
// computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serving/metrics/status.h"

namespace larder::node::inline tasks {

// Whether the Plan has room in L3 for all weights of the socket.
bool IsPlannedResident(const serving::SocketPlace&);

// Decides when to warn of one socket; looked at once a second.
class ResidencyWarning {
 public:
  // frames: that the socket has finished; live: its share. Returns true if a warning is due: the
  // share was low in three looks, with frames since the look before, and had been high since the
  // last warning, which is a minute old.
  bool Due(int64_t now_ns, uint64_t frames, std::optional<double> live);

 private:
  static constexpr double kLow = 0.7, kHigh = 0.85;
  static constexpr int kLooks = 3;
  static constexpr int64_t kRestNs = 60'000'000'000;
  uint64_t frames_ = 0;
  int low_looks_ = 0;
  bool armed_ = true;
  std::optional<int64_t> warned_ns_;
};

// One line: the share after loading (nullopt: not measured) and now, why that may be, and what to
// do. kv_bytes: of the socket's KV cache, those in use.
std::string ResidencyLine(const serving::SocketPlace&, std::optional<double> after_loading,
                          double live, uint64_t kv_bytes);

}  // namespace larder::node::tasks
