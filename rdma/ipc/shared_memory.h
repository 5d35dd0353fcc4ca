// SharedMemory: one region that two processes of a server map, made by one of them and handed to the other as
// a file descriptor (rdma/control/control_channel.h). It has no name, so a crashed run leaves nothing behind,
// and it is sealed against resizing, so neither process can take pages from under the other (no SIGBUS).
// Set-up only: made before READY, unmapped by the destructor. The region lies at different addresses in the
// two processes: nothing in it may be a pointer.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "rdma/ipc/descriptor.h"
#include "topology/arena.h"

namespace larder::rdma {

class SharedMemory {
 public:
  SharedMemory() = default;  // no memory
  // At least `bytes` bytes (rounded up to pages of whatever size it got), zero. label: what it is for, as
  // /proc/PID/maps shows it. Huge pages if they are free, else what the kernel gives; notes() says which and
  // why not better. Error, with numbers, if the memory is not there.
  static SharedMemory Create(size_t bytes, const char* label);
  // The region behind a descriptor that another process made with Create(expected_bytes). Takes the
  // descriptor over, also if it throws: Error if the size is another one or the seals are missing.
  static SharedMemory Attach(int fd, size_t expected_bytes);

  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }  // as asked for; the mapping may be larger
  std::span<std::byte> span() const { return {data_, bytes_}; }
  int fd() const { return fd_.get(); }
  topology::Backing backing() const { return backing_; }
  const std::string& notes() const { return notes_; }  // why not better, empty if nothing is to be said

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

}  // namespace larder::rdma
