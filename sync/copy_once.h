// What another process may be writing just now (a shared segment, a ring that an adapter writes into) is read
// once, into memory of one's own; then the copy is checked, then the copy is used. A value that is read a
// second time where it came may be another one by then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

namespace larder::sync {

// The fence costs no instruction. It forbids the compiler to read `from` again where the code says `to`,
// which it might do since for all it knows nobody writes there.
inline void CopyOnce(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace larder::sync
