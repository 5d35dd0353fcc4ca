// Constants of the memory system that several folders share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace larder {

inline constexpr size_t kCacheLineBytes = 64;
// Fields that different cores write lie this far apart: the adjacent-line prefetcher of Intel cores
// (and the 128-byte pairs of Zen's L2 prefetcher) makes two neighbouring lines one unit of
// contention.
inline constexpr size_t kFalseSharingBytes = 128;
// Whether fields at these offsets of an object aligned to kFalseSharingBytes lie on lines apart.
constexpr bool Apart(size_t one_offset, size_t other_offset) {
  return one_offset / kFalseSharingBytes != other_offset / kFalseSharingBytes;
}
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

constexpr size_t RoundUp(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
constexpr size_t CeilDiv(size_t n, size_t d) { return (n + d - 1) / d; }

}  // namespace larder
