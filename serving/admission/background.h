// Background: one thread for what takes long and has no socket: reading a large request and cutting its
// prompt into tokens would keep the I/O thread from everybody's next token. Any thread may post. Peers take
// turns; a peer's jobs run in order; a job that nobody wants any more is dropped before its turn, and freed
// then. Those not begun at the end are dropped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/pulse.h"

namespace larder::serving {

// Somebody wants what was posted as long as it lives.
using JobTicket = std::shared_ptr<void>;

class Background {
 public:
  // Called with what a job has thrown, on the thread of the job; the thread goes on.
  using FailureHandler = std::function<void(const char* what)>;

  explicit Background(FailureHandler failed = {});
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  // The ticket may outlive this. When it is dropped before the job has begun, the job is freed there and
  // then, by whoever drops it.
  JobTicket Post(const std::string& peer, std::function<void()> job);
  size_t waiting() const;  // jobs not begun
  void Close();            // when the job at hand is done; the thread that made it, any number of times
  const Pulse& pulse() const { return pulse_; }  // beats with each job, rests without one

 private:
  struct Queue;
  void Run();
  const FailureHandler failed_;
  const std::shared_ptr<Queue> queue_;
  Pulse pulse_;
  std::thread thread_;
};

}  // namespace larder::serving
