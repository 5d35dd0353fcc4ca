// Arena: one region of memory on one NUMA node, on huge pages where the machine has them, mapped once at
// set-up and unmapped by the destructor. Creating it touches no page: the thread that will read a part
// touches it first. Allocate() is not thread-safe; the bytes belong to whoever asked until the arena ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/memory.h"

namespace larder::topology {

enum class Backing {
  kHugeTlb,      // 2 MB pages from the kernel's reserved pool
  kTransparent,  // 2 MB pages where the kernel finds them (madvise)
  kPlain,        // 4 KB pages
};
const char* BackingName(Backing backing);

// For memory that is no Arena (shared with another process). Bytes in free 2 MB pages of the reserved pool:
// of the node, or of the machine if none is given.
uint64_t FreeReservedBytes(NumaNodeId node);
NumaNodeId NodeOfThisThread();  // where it runs just now; not valid if the kernel does not say
// Pages come from this node while it has any. False, with errno, if that is not allowed.
bool PreferNode(void* data, size_t bytes, NumaNodeId node);
// Every page gets its memory now: where there is none, false with errno, not a SIGBUS at the first touch.
// True also where the kernel cannot do it (before 5.14).
bool TouchAll(void* data, size_t bytes);

class Arena {
 public:
  Arena() = default;  // no memory
  // bytes are rounded up to huge pages. node: an invalid id binds to no node. Error, with numbers, if the
  // memory is not there; a machine that refuses huge pages or binding gives a plain arena and a line in
  // notes().
  explicit Arena(size_t bytes, NumaNodeId node = NumaNodeId{});
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  size_t used_bytes() const { return used_bytes_; }
  Backing backing() const { return backing_; }
  bool bound() const { return bound_; }
  const std::string& notes() const { return notes_; }  // why not better, empty if nothing is to be said

  // `bytes` bytes at a multiple of align (a power of two, at most a huge page), zero when first touched.
  // Error if the arena is too small: that is a set-up error of whoever sized it.
  std::byte* Allocate(size_t bytes, size_t align = kCacheLineBytes);
  template <typename T>
  std::span<T> AllocateArray(size_t count, size_t align = kCacheLineBytes) {
    return {reinterpret_cast<T*>(Allocate(CheckedBytes(count, sizeof(T)), align)), count};
  }

  // "512 MB on node 0, transparent huge pages (no free reserved huge pages: need 256, free 0)"
  std::string Describe() const;

 private:
  static size_t CheckedBytes(size_t count, size_t size);
  void Release();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t used_bytes_ = 0;
  Backing backing_ = Backing::kPlain;
  bool bound_ = false;
  NumaNodeId node_;
  std::string notes_;
};

}  // namespace larder::topology
