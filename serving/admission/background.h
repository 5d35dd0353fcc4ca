// Background: one thread for long work that needs no connection. Parsing a large request and
// tokenizing its prompt on the I/O thread would delay every client's next token. Any thread may
// post. Peers take turns; a peer's jobs run in order. A job whose ticket is dropped before its turn
// is freed at once. Jobs that have not begun at the end are dropped.
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

namespace larder::serving::inline admission {

// Keeps a posted job wanted; dropping it before the job begins drops the job.
using JobTicket = std::shared_ptr<void>;

class Background {
 public:
  // Called on the background thread with what() of an exception that a job threw; the thread goes
  // on.
  using FailureHandler = std::function<void(const char* what)>;

  // name: the thread's, of at most 15 bytes.
  explicit Background(FailureHandler failed = {}, const char* name = "larder-prepare");
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  // The ticket may outlive this object. If it is dropped before the job has begun, the dropping
  // thread frees the job at once.
  JobTicket Post(const std::string& peer, std::function<void()> job);
  size_t waiting() const;  // jobs not begun
  void Close();  // waits for the running job; called by the creating thread, any number of times
  const Pulse& pulse() const { return pulse_; }  // beats with each job, rests without one

 private:
  struct Queue;
  void Run();
  const FailureHandler failed_;
  const char* const name_;
  const std::shared_ptr<Queue> queue_;
  Pulse pulse_;
  std::thread thread_;
};

}  // namespace larder::serving::admission
