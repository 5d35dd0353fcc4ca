#include "serving/background.h"

#include <pthread.h>
#include <sys/resource.h>

#include <utility>

namespace larder::serving {

constexpr int kNice = 15;  // a thirtieth of the core while somebody else wants it

Background::Background() : thread_([this] { Run(); }) {}

Background::~Background() { Close(); }

void Background::Close() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Background::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Background::Run() {
  pthread_setname_np(pthread_self(), "larder-prepare");
  // Of this thread only, as Linux has it: where it must share a core, the thread that computes there goes on.
  setpriority(PRIO_PROCESS, 0, kNice);
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace larder::serving
