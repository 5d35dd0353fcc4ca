// Share: divides a number of equal pieces of work among threads.
#pragma once

#include <cstdint>

namespace larder::threadpool {

// Thread t of n takes [begin, end) of `count` pieces. The ranges are contiguous; sizes differ by at most one.
struct Share {
  uint32_t begin, end;
};
constexpr Share ShareOf(uint32_t count, uint32_t t, uint32_t n) {
  return {static_cast<uint32_t>(static_cast<uint64_t>(count) * t / n),
          static_cast<uint32_t>(static_cast<uint64_t>(count) * (t + 1) / n)};
}

}  // namespace larder::threadpool
