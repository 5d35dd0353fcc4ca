// VirtualClock: time that passes only when somebody says so.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace larder::pipeline::inline simulation {

class VirtualClock final : public Clock {
 public:
  uint64_t now_ns() override { return now_ns_; }
  void SleepMs(int ms) override { Advance(static_cast<uint64_t>(ms) * 1'000'000); }
  void Advance(uint64_t ns) { now_ns_ += ns; }
  // Not back: a time that has passed changes nothing.
  void AdvanceTo(uint64_t ns) { now_ns_ = std::max(now_ns_, ns); }

 private:
  uint64_t now_ns_ = 1;  // 0 is "never" to some who keep times
};

}  // namespace larder::pipeline::simulation
