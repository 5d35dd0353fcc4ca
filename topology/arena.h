// Arena: one region of memory on one NUMA node, on huge pages where the machine has them. It is
// mapped once at set-up and unmapped by the destructor. Creating it touches no page: the thread
// that will read a part touches it first. Allocate() is not thread-safe; its bytes are the caller's
// until the arena is destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/memory.h"

namespace larder::topology {

enum class Backing {
  kHugeTlb,      // 2 MB pages from the kernel's reserved pool
  kTransparent,  // 2 MB pages where the kernel finds them (madvise)
  kPlain,        // 4 KB pages
};
const char* BackingName(Backing backing);

// The following functions are for memory that is not an Arena (shared with another process).

// Bytes in free 2 MB pages of the reserved pool, of the node, or of the machine if `node` is
// invalid.
uint64_t FreeReservedBytes(NumaNodeId node);
NumaNodeId NodeOfThisThread();  // the node on which it runs at this moment; invalid if the kernel
                                // does not say
// Takes pages from this node as long as it has any. Returns false, with errno, if that is not
// allowed.
bool PreferNode(void* data, size_t bytes, NumaNodeId node);
// Has the kernel give every page its memory at once, so that a lack of memory is not a SIGBUS at
// the first touch but returns false, with errno. Returns true, too, where the kernel cannot do it
// (before 5.14).
bool TouchAll(void* data, size_t bytes);

class Arena {
 public:
  Arena() = default;  // no memory
  // `bytes` is rounded up to huge pages. An invalid `node` binds to no node. Throws Error, with
  // numbers, if there is not enough memory. On a machine that refuses huge pages or binding the
  // arena is plain and notes() says so.
  explicit Arena(size_t bytes, NumaNodeId node = NumaNodeId{});
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  size_t used_bytes() const { return used_bytes_; }
  Backing backing() const { return backing_; }
  bool bound() const { return bound_; }
  NumaNodeId node() const { return node_; }            // that was asked for
  const std::string& notes() const { return notes_; }  // what the machine refused; empty: nothing

  // `bytes` bytes at a multiple of align (a power of two, at most a huge page), zero when first
  // touched. Throws Error if the arena is too small: its size was computed wrongly.
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

// Memory that a socket's threads use, laid out together, each part on the node of its thread: one
// arena for each of these nodes.
class NodeArenas {
 public:
  NodeArenas() = default;  // no memory
  // Calls lay_out(take) twice, to count bytes and to place them. take(node, bytes) gives memory of
  // that node, on lines that no other part touches, zero when first touched; null while it counts.
  // Throws Error.
  template <typename LayOut>
  explicit NodeArenas(const LayOut& lay_out) {
    std::map<NumaNodeId, size_t> bytes;
    lay_out([&](NumaNodeId node, size_t n) -> std::byte* {
      bytes[node] += RoundUp(n, kFalseSharingBytes);
      return nullptr;
    });
    for (const auto& [node, n] : bytes) arenas_.emplace(node, Arena(n, node));
    lay_out([&](NumaNodeId node, size_t n) {
      return arenas_.at(node).Allocate(RoundUp(n, kFalseSharingBytes), kFalseSharingBytes);
    });
  }

  size_t bytes() const;
  std::vector<NumaNodeId> nodes() const;  // ascending
  // Where the arena of these bytes was asked for, which must be in one of them.
  NumaNodeId NodeOf(const void* memory) const;

 private:
  std::map<NumaNodeId, Arena> arenas_;
};

}  // namespace larder::topology
