#include "rdma/common/fd_watch.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "rdma/common/helper_thread.h"

namespace larder::rdma::inline common {
FdWatch::FdWatch(int fd, std::function<std::optional<int>()> on_wake)
    : on_wake_(std::move(on_wake)), stop_(eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw Error("watching a descriptor: no eventfd: {}", std::strerror(errno));
  thread_ = StartHelper([this, fd] { Run(fd); });
}

FdWatch::~FdWatch() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void FdWatch::Run(int fd) {
  pollfd watched[2] = {{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  for (std::optional<int> timeout_ms = on_wake_(); timeout_ms;) {
    const int ready = poll(watched, 2, *timeout_ms);
    if (ready < 0) continue;  // EINTR, or no memory for a moment
    if (ready > 0 && watched[1].revents != 0) return;
    timeout_ms = on_wake_();
  }
}

}  // namespace larder::rdma::common
