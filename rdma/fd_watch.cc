#include "rdma/fd_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace larder::rdma {

FdWatch::FdWatch(int fd, std::function<bool()> on_readable)
    : on_readable_(std::move(on_readable)), stop_(eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw Error("watching a socket: no eventfd: {}", std::strerror(errno));
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  thread_ = std::thread([this, fd] { Run(fd); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FdWatch::~FdWatch() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void FdWatch::Run(int fd) {
  pollfd watched[2] = {{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  for (;;) {
    if (poll(watched, 2, -1) < 0) continue;  // EINTR, or no memory for a moment
    if (watched[1].revents != 0) return;
    if (watched[0].revents != 0 && !on_readable_()) return;
  }
}

}  // namespace larder::rdma
