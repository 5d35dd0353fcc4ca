// FdWatch: a thread asleep in poll() until a descriptor has something or a time is over, for what happens
// rarely and must not cost the data path anything (rdma/ipc/helper_thread.h).
#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "rdma/ipc/descriptor.h"

namespace larder::rdma {

class FdWatch {
 public:
  static constexpr int kUntilReadable = -1;

  // on_wake runs on the thread: at once, whenever fd can be read or has been closed by the other end, and
  // when the milliseconds are over that it returned; nothing: the watch ends. fd must stay open until the
  // watch has ended.
  FdWatch(int fd, std::function<std::optional<int>()> on_wake);
  ~FdWatch();  // ends the thread; never from within on_wake
  FdWatch(const FdWatch&) = delete;
  FdWatch& operator=(const FdWatch&) = delete;

 private:
  void Run(int fd);

  std::function<std::optional<int>()> on_wake_;
  Descriptor stop_;
  std::thread thread_;
};

}  // namespace larder::rdma
