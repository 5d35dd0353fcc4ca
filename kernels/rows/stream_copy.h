// Copies that bypass the caches, which are for weights.
#pragma once

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace larder::kernels::inline rows {

// Like memcpy, but lines of `to` are not brought into the caches. Such stores are not ordered with
// others; the sfence at the end makes this thread's next release cover them.
inline void StreamCopy(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  const size_t head = std::min(bytes, (16 - reinterpret_cast<uintptr_t>(out) % 16) % 16);
  std::memcpy(out, in, head);
  size_t at = head;
  for (; at + 16 <= bytes; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + at)));
  }
  std::memcpy(out + at, in + at, bytes - at);
  _mm_sfence();
}

}  // namespace larder::kernels::rows
