// Descriptor: a file descriptor that closes itself. -1 is none.
#pragma once

#include <unistd.h>

#include <utility>

namespace larder {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Take()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    const int fd = other.Take();
    Reset();
    fd_ = fd;
    return *this;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int Take() { return std::exchange(fd_, -1); }  // the caller must close it
  void Reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace larder
