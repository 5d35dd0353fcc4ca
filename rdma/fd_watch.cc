#include "rdma/fd_watch.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"

namespace larder::rdma {
namespace {

// The CPUs of the calling thread, as sched_setaffinity takes them; empty if the kernel does not tell.
std::vector<cpu_set_t> OwnCpus() {
  std::vector<cpu_set_t> sets(16);  // 16,384 CPUs
  if (sched_getaffinity(0, sets.size() * sizeof(cpu_set_t), sets.data()) != 0) sets.clear();
  return sets;
}

// Before main(), thus before any thread is pinned.
const std::vector<cpu_set_t> kCpusAtStart = OwnCpus();

}  // namespace

FdWatch::FdWatch(int fd, std::function<std::optional<int>()> on_wake)
    : on_wake_(std::move(on_wake)), stop_(eventfd(0, EFD_CLOEXEC)) {
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
  // Where that is forbidden it stays where its maker is.
  if (!kCpusAtStart.empty()) {
    sched_setaffinity(0, kCpusAtStart.size() * sizeof(cpu_set_t), kCpusAtStart.data());
  }
  pollfd watched[2] = {{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  for (std::optional<int> timeout_ms = on_wake_(); timeout_ms;) {
    const int ready = poll(watched, 2, *timeout_ms);
    if (ready < 0) continue;  // EINTR, or no memory for a moment
    if (ready > 0 && watched[1].revents != 0) return;
    timeout_ms = on_wake_();
  }
}

}  // namespace larder::rdma
