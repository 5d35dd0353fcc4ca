// ShareOf: divides a number of equal pieces of work among threads.
#pragma once

#include <cstdint>

#include "base/range.h"

namespace larder::threadpool {

// The pieces, of `count`, that thread t of n takes. The ranges are contiguous; sizes differ by at
// most one.
constexpr Range<uint32_t> ShareOf(uint32_t count, uint32_t t, uint32_t n) {
  return {static_cast<uint32_t>(static_cast<uint64_t>(count) * t / n),
          static_cast<uint32_t>(static_cast<uint64_t>(count) * (t + 1) / n)};
}

}  // namespace larder::threadpool
