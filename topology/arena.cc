#include "topology/arena.h"

#include <numaif.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "topology/sysfs.h"

namespace larder::topology {
namespace {

constexpr int kHugeTlb2Mb = 21 << 26;  // log2(2 MB) << MAP_HUGE_SHIFT

// In 2^20 bytes, as page sizes are counted.
double BinaryMb(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void CheckThereIsMemory(size_t bytes, NumaNodeId node) {
  const auto available = AvailableMemoryBytes();
  if (available && bytes > *available) {
    throw Error(
        "arena: {:.0f} MB needed, {:.0f} MB available on this machine (or in its memory cgroup); "
        "free memory, raise the limit, or take a smaller model or context",
        BinaryMb(bytes), BinaryMb(*available));
  }
  if (!node.valid()) return;
  const auto on_node = AvailableNodeBytes(node);
  if (on_node && bytes > *on_node) {
    throw Error(
        "arena: {:.0f} MB needed on NUMA node {}, {:.0f} MB free there; free memory on that node, "
        "or spread the model over more cores",
        BinaryMb(bytes), node.value, BinaryMb(*on_node));
  }
}

// Maps memory that starts on a huge-page border: maps one huge page more and unmaps the ends.
std::byte* MapAligned(size_t bytes) {
  const size_t span = bytes + kHugePageBytes;
  void* map = mmap(nullptr, span, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  const uintptr_t start = reinterpret_cast<uintptr_t>(map);
  const uintptr_t aligned = RoundUp(start, kHugePageBytes);
  if (aligned > start) munmap(map, aligned - start);
  const size_t tail = start + span - (aligned + bytes);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<std::byte*>(aligned);
}

bool BindTo(void* data, size_t bytes, NumaNodeId node, int mode) {
  constexpr int kMaxNodes = 1024;
  constexpr int kWordBits = sizeof(unsigned long) * CHAR_BIT;
  unsigned long mask[kMaxNodes / kWordBits] = {};
  if (node.value >= kMaxNodes) return false;
  mask[node.value / kWordBits] |= 1ul << (node.value % kWordBits);
  return mbind(data, bytes, mode, mask, kMaxNodes, 0) == 0;
}

void Append(std::string* notes, const std::string& text) {
  *notes += (notes->empty() ? "" : "; ") + text;
}

}  // namespace

uint64_t FreeReservedBytes(NumaNodeId node) {
  const std::string machine = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  const uint64_t total = ReadNumber(machine + "free_hugepages").value_or(0);
  const uint64_t promised = ReadNumber(machine + "resv_hugepages").value_or(0);
  uint64_t free = total - std::min(total, promised);
  if (node.valid()) {
    const auto on_node =
        ReadNumber(NodeFolder(node) + "/hugepages/hugepages-2048kB/free_hugepages");
    if (on_node) free = std::min(free, *on_node);
  }
  return free * kHugePageBytes;
}

// A strict policy would turn a touch into a SIGBUS when only other nodes have pages left.
bool PreferNode(void* data, size_t bytes, NumaNodeId node) {
  return BindTo(data, bytes, node, MPOL_PREFERRED);
}

bool TouchAll(void* data, size_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, younger than our C library
  return madvise(data, bytes, kPopulateWrite) == 0 || errno == EINVAL;
}

NumaNodeId NodeOfThisThread() {
  unsigned cpu = 0, node = 0;
  return getcpu(&cpu, &node) == 0 ? NumaNodeId(static_cast<int>(node)) : NumaNodeId();
}

const char* BackingName(Backing backing) {
  switch (backing) {
    case Backing::kHugeTlb:
      return "reserved 2 MB pages";
    case Backing::kTransparent:
      return "transparent huge pages";
    case Backing::kPlain:
      return "4 KB pages";
  }
  return "unknown";
}

Arena::Arena(size_t bytes, NumaNodeId node) : node_(node) {
  if (bytes == 0) return;
  if (bytes > (size_t{1} << 47))
    throw Error("arena: {} bytes asked for; more than an address space holds", bytes);
  bytes_ = RoundUp(bytes, kHugePageBytes);

  const uint64_t reserved = FreeReservedBytes(node);
  if (reserved >= bytes_) {
    void* map = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | kHugeTlb2Mb, -1, 0);
    if (map != MAP_FAILED) {
      data_ = static_cast<std::byte*>(map);
      backing_ = Backing::kHugeTlb;
    } else {
      Append(&notes_, fmt::format("reserved 2 MB pages refused: {}", std::strerror(errno)));
    }
  } else {
    Append(&notes_, fmt::format("reserved 2 MB pages: {} needed, {} free", bytes_ / kHugePageBytes,
                                reserved / kHugePageBytes));
  }
  if (data_ == nullptr) {
    CheckThereIsMemory(bytes_, node);
    data_ = MapAligned(bytes_);
    if (data_ == nullptr) {
      throw Error("arena: mapping {:.0f} MB: {}; look at `ulimit -v` and vm.overcommit_memory",
                  BinaryMb(bytes_), std::strerror(errno));
    }
    const std::string thp =
        BracketedChoice(ReadLine("/sys/kernel/mm/transparent_hugepage/enabled"));
    if (thp != "always" && thp != "madvise") {
      Append(&notes_,
             fmt::format("transparent huge pages: {}", thp.empty() ? "not in this kernel" : thp));
    } else if (madvise(data_, bytes_, MADV_HUGEPAGE) != 0) {
      Append(&notes_, fmt::format("transparent huge pages refused: {}", std::strerror(errno)));
    } else {
      backing_ = Backing::kTransparent;
    }
  }
  if (node.valid()) {
    // The kernel reserves pages for the machine, not for a node. With a strict binding, a touch
    // after another process took the node's pages would be a SIGBUS. A preference gives the same
    // pages without that risk.
    bound_ =
        BindTo(data_, bytes_, node, backing_ == Backing::kHugeTlb ? MPOL_PREFERRED : MPOL_BIND);
    if (!bound_) {
      Append(
          &notes_,
          fmt::format("not bound to node {}: {} (containers may forbid mbind); first touch decides",
                      node.value, std::strerror(errno)));
    }
  }
}

Arena::~Arena() { Release(); }

void Arena::Release() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = used_bytes_ = 0;
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  Release();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  used_bytes_ = std::exchange(other.used_bytes_, 0);
  backing_ = other.backing_;
  bound_ = other.bound_;
  node_ = other.node_;
  notes_ = std::exchange(other.notes_, {});
  return *this;
}

size_t Arena::CheckedBytes(size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    throw Error("arena: {} elements of {} bytes: more than an address space holds", count, size);
  }
  return bytes;
}

std::byte* Arena::Allocate(size_t bytes, size_t align) {
  LARDER_CHECK(align != 0 && (align & (align - 1)) == 0 && align <= kHugePageBytes, "alignment {}",
               align);
  const size_t start = RoundUp(used_bytes_, align);
  if (start > bytes_ || bytes > bytes_ - start) {
    throw Error("arena: {} bytes asked for, {} of {} left", bytes, bytes_ - std::min(bytes_, start),
                bytes_);
  }
  used_bytes_ = start + bytes;
  return data_ + start;
}

std::string Arena::Describe() const {
  if (data_ == nullptr) return "no memory";
  const std::string where = bound_ ? fmt::format("on node {}", node_.value) : "on any node";
  return fmt::format("{:.0f} MB {}, {}{}{}{}", BinaryMb(bytes_), where, BackingName(backing_),
                     notes_.empty() ? "" : " (", notes_, notes_.empty() ? "" : ")");
}

size_t NodeArenas::bytes() const {
  size_t bytes = 0;
  for (const auto& [node, arena] : arenas_) bytes += arena.bytes();
  return bytes;
}

std::vector<NumaNodeId> NodeArenas::nodes() const {
  std::vector<NumaNodeId> nodes;
  for (const auto& [node, arena] : arenas_) nodes.push_back(node);
  return nodes;
}

NumaNodeId NodeArenas::NodeOf(const void* memory) const {
  const auto* const at = static_cast<const std::byte*>(memory);
  for (const auto& [node, arena] : arenas_)
    if (at >= arena.data() && at < arena.data() + arena.bytes()) return node;
  LARDER_CHECK(false, "memory of none of these arenas");
  return {};
}

}  // namespace larder::topology
