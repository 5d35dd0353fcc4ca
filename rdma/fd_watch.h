// FdWatch: a thread asleep in poll() until a descriptor has something, for what happens rarely and must not
// cost the data path anything. It takes no signals; those go to the program's own threads.
#pragma once

#include <functional>
#include <thread>

#include "rdma/descriptor.h"

namespace larder::rdma {

class FdWatch {
 public:
  // on_readable runs on the thread whenever fd can be read or has been closed by the other end, until it
  // returns false. fd must stay open until the watch has ended.
  FdWatch(int fd, std::function<bool()> on_readable);
  ~FdWatch();  // ends the thread; never from within on_readable
  FdWatch(const FdWatch&) = delete;
  FdWatch& operator=(const FdWatch&) = delete;

 private:
  void Run(int fd);

  std::function<bool()> on_readable_;
  Descriptor stop_;
  std::thread thread_;
};

}  // namespace larder::rdma
