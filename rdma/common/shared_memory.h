// SharedMemory: one region that two processes of a server map. One process makes it and hands it to
// the other as a file descriptor (rdma/control/control_channel.h). It has no name, so a crashed run
// leaves nothing behind. It is sealed against resizing, so neither process can take pages away from
// the other (no SIGBUS). It is made at set-up, before READY, and unmapped by the destructor. The
// two processes map it at different addresses, so it may not contain pointers.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "topology/arena.h"

namespace larder::rdma::inline common {

class SharedMemory {
 public:
  SharedMemory() = default;  // no memory
  // At least `bytes` zero bytes, rounded up to the page size that it got. label: its purpose, as
  // /proc/PID/maps shows it. It gets huge pages if they are free, else other pages; notes() says
  // which and why. Throws Error, with numbers, if there is not enough memory.
  static SharedMemory Create(size_t bytes, const char* label);
  // The region behind a descriptor that another process made with Create(expected_bytes). Takes
  // ownership of the descriptor, even if it throws. Throws Error if the size differs or the seals
  // are missing.
  static SharedMemory Attach(int fd, size_t expected_bytes);

  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }  // as asked for; the mapping may be larger
  std::span<std::byte> span() const { return {data_, bytes_}; }
  int fd() const { return fd_.get(); }
  topology::Backing backing() const { return backing_; }
  const std::string& notes() const {
    return notes_;
  }  // why it has no huge pages; empty: it has them

 private:
  void Map(const char* what);
  void Release();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_bytes_ = 0;
  Descriptor fd_;
  topology::Backing backing_ = topology::Backing::kPlain;
  std::string notes_;
};

}  // namespace larder::rdma::common
