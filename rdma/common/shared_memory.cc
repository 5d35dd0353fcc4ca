#include "rdma/common/shared_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "topology/sysfs.h"

namespace larder::rdma::inline common {
namespace {

using topology::Backing;

// Neither end may change the size or remove the seals. Writing stays allowed.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

void Append(std::string* notes, const std::string& note) {
  if (!notes->empty()) *notes += "; ";
  *notes += note;
}

// A sealed memory file of `bytes` bytes; no descriptor, with errno, if it fails.
Descriptor MakeFile(const char* label, size_t bytes, unsigned flags) {
  Descriptor fd(static_cast<int>(memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags)));
  if (fd && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0) {
    return fd;
  }
  return {};
}

}  // namespace

SharedMemory SharedMemory::Create(size_t bytes, const char* label) {
  if (bytes == 0) throw Error("shared memory \"{}\": 0 bytes asked for", label);
  const auto available = topology::AvailableMemoryBytes();
  if (available && bytes > *available) {
    throw Error(
        "shared memory \"{}\": {} MB needed, {} MB available on this machine (or in its memory "
        "cgroup); free memory, raise the limit, or take fewer slots or a shorter context",
        label, bytes >> 20, *available >> 20);
  }
  SharedMemory memory;
  memory.bytes_ = bytes;
  const size_t huge_bytes = RoundUp(bytes, kHugePageBytes);
  // Pages come from the node of this thread: a unit's memory may be bound to that node, and it can
  // then use no page of another. Free pages may be promised to processes that have not touched them
  // yet, so all are touched here.
  const NumaNodeId node = topology::NodeOfThisThread();
  const size_t free_huge_bytes = topology::FreeReservedBytes(node);
  if (free_huge_bytes >= huge_bytes) {
    memory.fd_ = MakeFile(label, huge_bytes, MFD_HUGETLB | MFD_HUGE_2MB);
    if (memory.fd_) {
      try {
        memory.Map(label);
        if (node.valid())
          topology::PreferNode(memory.data_, memory.mapped_bytes_, node);  // best effort
        if (topology::TouchAll(memory.data_, memory.mapped_bytes_)) return memory;
        Append(&memory.notes_,
               fmt::format("reserved 2 MB pages are in use: {}", std::strerror(errno)));
      } catch (const Error& error) {  // another process took the pages in between
        Append(&memory.notes_, error.what());
      }
      memory.Release();
      memory.data_ = nullptr;
      memory.backing_ = Backing::kPlain;
      memory.fd_.Reset();
    } else {
      Append(&memory.notes_, fmt::format("reserved 2 MB pages refused: {}", std::strerror(errno)));
    }
  } else {
    Append(&memory.notes_,
           fmt::format("reserved 2 MB pages: {} needed, {} free", huge_bytes / kHugePageBytes,
                       free_huge_bytes / kHugePageBytes));
  }
  memory.fd_ = MakeFile(label, bytes, 0);
  if (!memory.fd_) {
    throw Error("shared memory \"{}\": no memory file of {} bytes: {}", label, bytes,
                std::strerror(errno));
  }
  memory.Map(label);
  return memory;
}

SharedMemory SharedMemory::Attach(int fd, size_t expected_bytes) {
  SharedMemory memory;
  memory.fd_ = Descriptor(fd);  // closes it also when this throws
  memory.bytes_ = expected_bytes;
  struct stat status = {};
  if (fstat(fd, &status) != 0) {
    memory.fd_.Take();
    throw Error("shared memory from the peer: descriptor {} is not open: {}", fd,
                std::strerror(errno));
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    throw Error(
        "shared memory from the peer: it is not sealed against resizing: the peer is not this "
        "program");
  }
  const size_t page_bytes =
      status.st_blksize == static_cast<blksize_t>(kHugePageBytes) ? kHugePageBytes : size_t{1};
  if (expected_bytes == 0 ||
      static_cast<size_t>(status.st_size) != RoundUp(expected_bytes, page_bytes)) {
    throw Error(
        "shared memory from the peer: {} bytes, expected {}: the two processes were started with "
        "different models or manifests",
        status.st_size, expected_bytes);
  }
  memory.Map("from the peer");
  return memory;
}

// The kernel itself aligns mappings of memory files to 2 MB where it would use such pages for them.
void SharedMemory::Map(const char* what) {
  struct stat status = {};
  if (fstat(fd_.get(), &status) != 0) {
    throw Error("shared memory \"{}\": descriptor {}: {}", what, fd_.get(), std::strerror(errno));
  }
  const bool reserved = status.st_blksize == static_cast<blksize_t>(kHugePageBytes) &&
                        static_cast<size_t>(status.st_size) == RoundUp(bytes_, kHugePageBytes);
  mapped_bytes_ = RoundUp(bytes_, reserved ? kHugePageBytes : kPageBytes);
  void* start = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (start == MAP_FAILED) {
    throw Error("shared memory \"{}\": {} bytes cannot be mapped: {}", what, bytes_,
                std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(start);
  if (reserved) {
    backing_ = Backing::kHugeTlb;
    notes_.clear();
    return;
  }
  // The setting "advise" needs this madvise; with "always", "within_size" and "force" it does no
  // harm.
  const std::string setting = topology::BracketedChoice(
      topology::ReadLine("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  if (setting.empty() || setting == "never" || setting == "deny") {
    Append(&notes_, fmt::format("transparent huge pages for shared memory: {}",
                                setting.empty() ? "not in this kernel" : setting));
  } else if (madvise(data_, mapped_bytes_, MADV_HUGEPAGE) != 0) {
    Append(&notes_, fmt::format("transparent huge pages refused: {}", std::strerror(errno)));
  } else {
    backing_ = Backing::kTransparent;
  }
}

SharedMemory::~SharedMemory() { Release(); }

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  Release();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  fd_ = std::move(other.fd_);
  backing_ = std::exchange(other.backing_, Backing::kPlain);
  notes_ = std::move(other.notes_);
  return *this;
}

void SharedMemory::Release() {
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
}

}  // namespace larder::rdma::common
