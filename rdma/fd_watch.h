// FdWatch: a thread asleep in poll() until a descriptor has something or a time is over, for what happens
// rarely and must not cost the data path anything. It takes no signals; those go to the program's own
// threads. It may run on every CPU that the process had at its start, not only on the one to which a pool has
// pinned the thread that makes the watch: the scheduler gives it an idle one where there is one, and where
// all spin, it takes some 10 us of one at each waking.
#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "rdma/descriptor.h"

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
