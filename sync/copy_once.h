// CopyOnce: reads memory that another process may be writing at this moment (a shared segment, a
// ring that an adapter writes into) exactly once, into private memory. The copy is then checked,
// and the copy is used. A second read of the original may give another value than the one that was
// checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

namespace larder::sync {

// The fence costs no instruction. It forbids the compiler to read `from` again where the code says
// `to`; the compiler could do that because it assumes that no other thread writes there.
inline void CopyOnce(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace larder::sync
