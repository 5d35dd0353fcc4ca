// FdWatch: a thread that sleeps in poll() until a descriptor is readable or a timeout expires. It
// handles rare events that must not cost the data path anything (rdma/common/helper_thread.h).
#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "base/descriptor.h"

namespace larder::rdma::inline common {

class FdWatch {
 public:
  static constexpr int kUntilReadable = -1;

  // on_wake runs on the watch's thread: first at once, then whenever fd is readable or closed by
  // the other end, or when the timeout expires. It returns the next timeout in milliseconds
  // (kUntilReadable: none), or nullopt to end the watch. fd must stay open until the watch has
  // ended.
  FdWatch(int fd, std::function<std::optional<int>()> on_wake);
  ~FdWatch();  // ends the thread; not to be called from within on_wake
  FdWatch(const FdWatch&) = delete;
  FdWatch& operator=(const FdWatch&) = delete;

 private:
  void Run(int fd);

  std::function<std::optional<int>()> on_wake_;
  Descriptor stop_;
  std::thread thread_;
};

}  // namespace larder::rdma::common
